"""The models of a live run that are handed out: the one that was measured last, and the best.

Each is one file in the run's folder that says of itself which version it is and what was measured of it: so they stay right
over a kill, and nothing else has to be written for them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.learning.card import FILES, Fit, ModelCard, card_of, fit_of, read_card, with_card
from fedtwin.learning.data import load_dataset
from fedtwin.learning.kept import is_better
from fedtwin.learning.layout import Weights
from fedtwin.learning.tasks import task_of
from fedtwin.live.run.core import Core
from fedtwin.live.run.gathering import features_of
from fedtwin.live.wire.ports import Disk
from fedtwin.live.wire.tensors import Codec, UnfitError, metadata_of
from fedtwin.records.files import CODE_NAME


def card_for(core: Core, folder: Path) -> ModelCard:
    """Of the run's models. What its samples are is seen in its test set, if that is here."""
    assert core.began is not None
    fit = _fit(core.given, core.normalisation)
    told = features_of(member.joined.moments for member in core.members.values())
    return card_of(core.given, fit._replace(features=fit.features or told), core.began.config_hash, folder / CODE_NAME)


def _fit(config: Config, gathered: dict[str, list[float]] | None) -> Fit:
    learning = config.learning
    assert learning is not None
    try:
        return fit_of(load_dataset(learning.dataset, learning, ("test",)).normalised(gathered))
    except FedtwinError:
        kind = None if learning.input == "auto" else learning.input
        return Fit(None, learning.outputs or None, kind, gathered or learning.normalisation or None)


class Keepsakes:
    """Written whole, before the event of the evaluation that they come from."""

    def __init__(self, folder: Path, core: Core, codec: Callable[[], Codec], disk: Disk, *, fsync: bool) -> None:
        self._folder, self._core, self._codec, self._disk, self._fsync = folder, core, codec, disk, fsync
        self.card: ModelCard | None = None
        self._normalised_by: dict[str, list[float]] | None = None

    def describe(self) -> None:
        """Reads the test set, once for a normalisation: not in the thread that serves."""
        if self.card is None or self._normalised_by != self._core.normalisation:
            self._normalised_by, self.card = self._core.normalisation, card_for(self._core, self._folder)

    def measured(self, weights: Weights, version: int, round_: int, test_loss: float, test_metric: float | None) -> None:
        """What is served has been evaluated, and may be the best."""
        assert self.card is not None and self._core.config.learning is not None
        measured = {"version": version, "round": round_, "test_loss": test_loss, "test_metric": test_metric}
        best, direction = self._best(), task_of(self._core.config.learning).direction
        if is_better(test_metric, None if best is None else best.test_metric, direction):
            self._write(weights, self.card.of("best", **measured))
        self._write(weights, self.card.of("served", **measured))

    def _write(self, weights: Weights, card: ModelCard) -> None:
        data = with_card(self._codec().encode(weights), card)
        self._disk.write_whole(self._folder / FILES[card.which], data, fsync=self._fsync)

    def _best(self) -> ModelCard | None:
        """None also of one that is damaged, or of another run: another takes its place."""
        path = self._folder / FILES["best"]
        try:
            data: Any = self._disk.read(path)
            card = read_card(metadata_of(data), str(path))
            self._codec().decode_own(data)
        except (OSError, FedtwinError, UnfitError):
            return None
        return card if self._core.began is not None and card.config_hash == self._core.began.config_hash else None
