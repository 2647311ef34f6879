"""A network tried out before the first round: what cannot be trained, or would give other numbers elsewhere, is told there."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import Dataset
from fedtwin.learning.data.dataset import SampleKind
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Images, LocalTrainer, initial_weights, trains_on_one
from fedtwin.learning.objectives import Objective
from fedtwin.usercode import sentence_of_error

IMAGES = 4
RATE = 1e-3


def try_out(model: nn.Module, learning: LearningConfig, shape: tuple[int, ...], outputs: int, folder: str | None = None) -> str:
    """Trains and evaluates a user's own network twice from the same start, on a few random samples. Gives a digest of the bits.

    All of its state must be in parameters and buffers: anything else is lost on the way to another process, device or day.
    """
    start, lesson = initial_weights(model), Lesson(np.arange(IMAGES)[None], RATE)
    with errors_as_sentences(learning.model):
        trainer = LocalTrainer(
            model,
            _samples(shape, outputs, learning.task),
            learning.model_copy(update={"batch_size": 2}),
            folder,
        )
        outcomes = []
        for _ in range(2):
            evaluated, trained = trainer.evaluate(start), trainer.train(start, lesson)
            numbers = np.array([evaluated.test_loss, evaluated.test_metric, trained.train_loss])
            outcomes.append([part.tobytes() for part in (numbers, *trained.weights)])
    if outcomes[0] != outcomes[1]:
        raise FedtwinError(sentence_of_memory(learning))
    return hashlib.sha256(b"".join([*(part.tobytes() for part in start), *outcomes[0]])).hexdigest()


def sentence_of_memory(learning: LearningConfig) -> str:
    """What trains differently the second time."""
    own = {"learning.model": learning.model, **learning.own_code}
    named = [f"{setting} = {name!r}" for setting, name in own.items() if ":" in name and setting != "learning.aggregation"]
    return (
        f"{' with '.join(named)} gives other numbers when it is trained again from the same start: all state must be in "
        "the parameters and buffers (register_buffer) of the network, and all chance from torch's generator."
    )


@contextmanager
def errors_as_sentences(model: str) -> Iterator[None]:
    """What a network of the user's own raises, early or late, names the setting, the file and the line."""
    try:
        yield
    except FedtwinError:
        raise
    except Exception as error:
        if ":" not in model:
            raise
        raise FedtwinError(f"learning.model = {model!r} fails in training: {sentence_of_error(error)}.") from None


def require_training_on_one(model: nn.Module, objective: Objective, shape: tuple[int, ...], samples: Sequence[int]) -> None:
    """Batch normalisation over a batch of one sample has nothing to normalise by."""
    learning = objective.learning
    if trains_on_one(model, shape, objective):
        return
    if learning.batch_size == 1:
        which = "learning.batch_size = 1: every batch is a single sample"
    else:
        many = list(samples).count(1)
        which = (
            f"D_n = 1 for {many} of {len(samples)} devices (fleet.samples_min, fleet.file or their data): that is one sample"
        )
    raise FedtwinError(
        f"{which}, on which learning.model = {learning.model!r} cannot be trained with samples of shape {shape}, as "
        "batch normalisation cannot; at least 2 are needed."
    )


def _samples(shape: tuple[int, ...], outputs: int, task: str) -> Images:
    """Samples whose mean is not 0 when they are normalised, as two dark ones beside them are: sums over them do not vanish."""
    random = np.random.default_rng(0)
    last = (*shape[1:], shape[0]) if len(shape) == 3 else shape
    x = random.normal(size=(IMAGES + 2, *last)).astype(np.float32)
    x[IMAGES:] -= 1.0
    y: NDArray[Any] = np.arange(IMAGES + 2) % outputs
    if task != "classification":
        y = (np.arange((IMAGES + 2) * outputs).reshape(-1, outputs) % 2).astype(np.float32)
    kind: SampleKind = "images" if len(shape) == 3 else "windows" if len(shape) == 2 else "rows"
    return Images(Dataset(x, y, x[:IMAGES], y[:IMAGES], kind, task))
