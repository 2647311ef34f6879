"""What a training run leaves on disk while it goes on, and when it has ended."""

import time
from typing import TYPE_CHECKING

from fedtwin.config import Config
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records import RunFolder
from fedtwin.records.files import CODE_NAME
from fedtwin.records.writing import telling_of_failed_writes
from fedtwin.sim.engine import Engine

if TYPE_CHECKING:
    from fedtwin.learning.learner import Learner

CHECKPOINT_NAME = "checkpoint.safetensors"


class Checkpoints:
    """Between rounds: lets a resumed learner go on where it stopped, and writes a checkpoint now and then."""

    def __init__(self, engine: Engine, folder: RunFolder | None, every_s: float, name: str) -> None:
        self._engine, self._learner, self._folder, self._every_s = engine, engine.learner, folder, every_s
        self._hash = name
        self._written_at = time.monotonic()

    def pause(self) -> None:
        if self._learner is None:
            return
        self._learner.go_on(self._engine.coordinator.round)
        if self._folder is not None and not self._learner.replaying and time.monotonic() - self._written_at >= self._every_s:
            from safetensors import SafetensorError

            from fedtwin.learning.checkpoint import write_checkpoint

            state = self._learner.state(self._engine.coordinator.round)
            self._folder.save()
            self._folder.write_evaluations(state.evaluations)
            self._folder.write_refusals(state.refusals)
            with telling_of_failed_writes(self._folder.path, SafetensorError):
                write_checkpoint(self._folder.path, state, self._hash)
            self._written_at = time.monotonic()


def write_learned(folder: RunFolder, learner: "Learner", evaluations: list[Evaluation], config: Config, name: str) -> None:
    """Evaluations, refusals and the models of a run that has ended, and whose configuration has the hash ``name``."""
    from safetensors import SafetensorError

    from fedtwin.learning.card import FILES, ModelCard, card_of
    from fedtwin.learning.layout import Weights, save_weights

    folder.write_evaluations(evaluations)
    folder.write_refusals(learner.refusals)
    card = card_of(config, learner.fit, name, folder.path / CODE_NAME)

    def save(weights: Weights, of: ModelCard) -> None:
        with telling_of_failed_writes(folder.path, SafetensorError):
            save_weights(folder.path / FILES[of.which], learner.layout, weights, of.metadata)

    kept, last = learner.kept, evaluations[-1]
    if kept.best is not None and kept.best_evaluation is not None:
        save(kept.best, card.of("best", **_figure(kept.best_evaluation)))
    if last.plain_test_loss is not None:
        measured = {"test_loss": last.plain_test_loss, "test_metric": last.plain_test_metric}
        save(learner.model, card.of("plain", round=last.round, **measured))
    save(learner.served, card.of("served", **_figure(last)))


def _figure(evaluation: Evaluation) -> dict[str, float | None]:
    return {key: getattr(evaluation, key) for key in ("round", "test_loss", "test_metric")}
