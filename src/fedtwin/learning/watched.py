"""A trainer of a user's own code is watched: its first training must give the same bits whenever it is done again.

A count, a cache or a running mean in a plain attribute, which no digest sees, shows there, and so does chance that is not
PyTorch's.
"""

import hashlib
import pickle
import random
from typing import NamedTuple

import numpy as np

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.layout import Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, LocalTrainer, Trained
from fedtwin.learning.trial import sentence_of_memory
from fedtwin.usercode import Purity

FACTOR = 4


class _First(NamedTuple):
    start: Weights
    lesson: Lesson
    bits: bytes


class WatchedTrainer:
    """``trainer``, looked at after 1, 4, 16, 64, … tasks and whenever asked; one without code of the user's is left alone."""

    def __init__(self, trainer: LocalTrainer, learning: LearningConfig, purity: Purity) -> None:
        self._trainer, self._learning, self._purity = trainer, learning, purity
        self._watches = bool(learning.own_code)
        self._first: _First | None = None
        self._done = self._looked_at = 0
        self._next_look = 1

    def train(self, start: Weights, lesson: Lesson) -> Trained:
        trained = self._trainer.train(start, lesson)
        if self._watches and self._first is None:
            self._first = _First(Weights(start.floats.copy(), start.counters.copy()), lesson, _bits_of(trained))
        self._count()
        return trained

    def evaluate(self, weights: Weights) -> Evaluated:
        evaluated = self._trainer.evaluate(weights)
        self._count()
        return evaluated

    def require_no_memory(self) -> None:
        """What was trained and evaluated so far left nothing behind that the next training depends on."""
        if not self._watches or self._looked_at == self._done:
            return
        self._looked_at = self._done
        self._purity.require()
        if self._first is None:
            return
        chance = _other_chance()
        again = self._trainer.train(self._first.start, self._first.lesson)
        if _bits_of(again) != self._first.bits or _other_chance() != chance:
            raise FedtwinError(sentence_of_memory(self._learning))

    def _count(self) -> None:
        self._done += 1
        if self._done >= self._next_look:
            self._next_look *= FACTOR
            self.require_no_memory()


def _bits_of(trained: Trained) -> bytes:
    parts = (np.float64(trained.train_loss), *trained.weights)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).digest()


def _other_chance() -> bytes:
    """Where the generators stand that are not PyTorch's, and that no run seeds."""
    return pickle.dumps((random.getstate(), np.random.get_state()))
