"""What a run's folder holds, read back or refused with a sentence."""

import json
from pathlib import Path
from typing import Any, get_type_hints

from fedtwin import __version__
from fedtwin.config import HASH_FORMAT, Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.learning.evaluation import MEASURED
from fedtwin.records.checksums import require_as_written
from fedtwin.records.files import CONFIG_NAME, SUMMARY_NAME, UNFINISHED_NAME
from fedtwin.records.summary import Summary

OF_TRAINING = (*MEASURED, "refusals")
OF_A_TIMEOUT = ("drops", "wasted_energy_j")
ADDED_LATER = ("max_staleness",)
"""Numbers that a folder written before there were such has not."""


def read_unfinished(path: Path) -> tuple[Config, bool]:
    """The configuration of an unfinished run, and whether it is traced; anything else in the folder is an error."""
    in_vain = f"{str(path)!r} cannot be resumed"
    if (path / SUMMARY_NAME).exists():
        raise FedtwinError(f"{in_vain}: this run is finished, there is nothing to resume.")
    try:
        mark = json.loads(plain_file(path / UNFINISHED_NAME).read_text(encoding="utf-8"))
        begun, known_hash, trace = (mark[name] for name in ("package_version", "config_hash", "trace"))
    except (OSError, ValueError, LookupError, TypeError):
        raise FedtwinError(f"{str(path)!r} is not the folder of an unfinished run.") from None
    config = load_config(path / CONFIG_NAME)
    if mark.get("hash_format") != HASH_FORMAT:
        raise FedtwinError(f"{in_vain}: an older fedtwin began this run and named it otherwise: run it anew.")
    if known_hash != config_hash(config):
        raise FedtwinError(f"{in_vain}: config.toml, or a file or code it names, has changed since the run began.")
    if begun != __version__:
        raise FedtwinError(f"{in_vain}: the run was begun by fedtwin {begun}, and this is {__version__}.")
    return config, bool(trace)


def _is_summary(found: Any) -> bool:
    """All that a summary must have, of the right types; a mean may be missing where there was nothing to take it of."""
    optional = (*OF_TRAINING, *OF_A_TIMEOUT, *ADDED_LATER)
    hints = {name: kind for name, kind in get_type_hints(Summary).items() if name not in optional}
    right = all(isinstance(found[name], kind if kind is not float else int | float) for name, kind in hints.items())
    return right and isinstance(found["scheme"], str) and isinstance(found["seed"], int)


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a finished run folder, or one sentence about why there is none that can be believed."""
    if (path / SUMMARY_NAME).exists():
        require_as_written(path, SUMMARY_NAME, CONFIG_NAME)
    try:
        summary: dict[str, Any] = json.loads(plain_file(path / SUMMARY_NAME).read_text(encoding="utf-8"))
        if not _is_summary(summary):
            raise ValueError
    except (OSError, ValueError, LookupError, RecursionError, AttributeError):
        raise FedtwinError(f"{str(path)!r} is not the folder of a finished run: {SUMMARY_NAME} cannot be read.") from None
    return summary
