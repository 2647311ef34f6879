"""The run that another one begins from: its model, what it normalises by, and its settings."""

import json
import logging
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtwin.config import Config, load_config, replace_settings
from fedtwin.errors import FedtwinError
from fedtwin.live.logs import say
from fedtwin.live.run.model import MODELS
from fedtwin.live.run.past import has_ledger, pasts_of
from fedtwin.live.run.settable import config_with
from fedtwin.live.run.tables import MODEL_NAME
from fedtwin.records.files import CONFIG_NAME, SUMMARY_NAME


@dataclass(frozen=True)
class Origin:
    """What is taken of a run: the settings as they were at its end, with its normalisation, and the file of its model."""

    folder: Path
    config: Config
    model: Path

    def begin(self, given: dict[str, Any]) -> Config:
        """The settings of a new run: those ``given``, the others as they were there; limits are the new fleet's to settle,
        unless they were given.
        """
        limits = {setting: value for setting, value in given.items() if setting.startswith("objective.max_")}
        return replace_settings(config_with(self.config, limits), given)

    def words(self, config: Config, given: dict[str, Any]) -> str:
        """What was taken, for the log."""
        normalised = config.learning is not None and bool(config.learning.normalisation)
        taken = ["its settings" if not given else f"its settings but for {', '.join(sorted(given))}"]
        taken += ["its normalisation"] if normalised and "learning.normalisation" not in given else []
        return f"{self.model.name}, {', '.join(taken)}"


def origin_of(folder: Path) -> Origin:
    """Of a live run, finished or not, or of a simulation that trained."""
    if not (folder / CONFIG_NAME).is_file():
        raise FedtwinError(f"--from {str(folder)!r} is not the folder of a run: it has no {CONFIG_NAME}.")
    config, found = load_config(folder / CONFIG_NAME), None
    model = folder / MODEL_NAME
    if has_ledger(folder):
        past = next(pasts_of(folder, config))
        past.replay()
        config, found = config_with(config, past.state.changed), past.state.normalisation
        newest = sorted((folder / MODELS).glob("model-*.safetensors"))
        if newest and not (folder / SUMMARY_NAME).exists():
            model = newest[-1]
    if not model.is_file():
        raise FedtwinError(f"--from {str(folder)!r} has no model: it has no {MODEL_NAME}.")
    found = found or _normalisation_in(model)
    if config.learning is not None and found and not config.learning.normalisation:
        config = replace_settings(config, {"learning.normalisation": found})
    return Origin(folder, config, model)


def _normalisation_in(model: Path) -> dict[str, list[float]] | None:
    """As the file of the model says, if it does."""
    try:
        with model.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        found: dict[str, list[float]] | None = json.loads(header["__metadata__"]["fedtwin"])["normalisation"]
    except (OSError, ValueError, LookupError, TypeError, struct.error):
        return None
    return found


def begin_from(folder: Path, given: dict[str, Any] | None = None) -> tuple[Config, Path]:
    """The configuration and the file of the initial model for ``serve``: of the run in a folder, with the settings ``given``
    (``{"section.key": value}``) over it. It is said what was taken.
    """
    origin, over = origin_of(folder), given or {}
    config = origin.begin(over)
    say(logging.INFO, f"begins from {folder}", taken=origin.words(config, over))
    return config, origin.model
