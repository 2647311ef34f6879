"""The averaged model, which is what a run serves: w̄ ← d w̄ + (1 − d) w each time the model w changes (Polyak & Juditsky, 1992).

An upload that k others have come before has the decay d_k = min(2^(−1/H), (1 + k) / (10 + k)), H being ``average_half_life``:
at the start w̄ follows w closely, and its memory grows with the uploads up to H. Where a change stands for several uploads, a
synchronous round or a buffer, its decay is the product of theirs. Devices train on from w.
"""

import math
from typing import Any, NamedTuple

from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.aggregation.base import Upload
from fedtwin.learning.aggregation.blend import blend
from fedtwin.learning.aggregation.held import Held, Move, in_memory, same_bits
from fedtwin.usercode import Questions


class Averaged(NamedTuple):
    """The state of the rule, w̄, the uploads so far, and the decay of those that the model has not changed by yet."""

    own: Any
    average: Any
    uploads: int = 0
    decay: float = 1.0


def decay_of(uploads: int, half_life: float) -> float:
    """d_k of the upload that ``uploads`` others have come before."""
    return min(math.pow(2.0, -1.0 / half_life), (1.0 + uploads) / (10.0 + uploads))


class AveragedRule:
    """A rule whose state has the average of the models it makes: whoever holds the state of a rule holds that too."""

    def __init__(self, rule: Rule, half_life: float) -> None:
        self.name, self.needs_start, self.extrapolates = rule.name, rule.needs_start, rule.extrapolates
        self.reads = rule.reads
        self._rule, self._half_life = rule, half_life

    def keep_questions(self) -> list[Questions]:
        return self._rule.keep_questions()

    def init(self, model: Any) -> Averaged:
        return Averaged(self._rule.init(model), model)

    def apply(self, state: Averaged, model: Any, upload: Upload) -> tuple[Averaged, Any]:
        own, new = self._rule.apply(state.own, model, upload)
        decay = state.decay * decay_of(state.uploads, self._half_life)
        return _after(Averaged(own, state.average, state.uploads + 1, decay), model, new), new

    def close_round(self, state: Averaged, model: Any) -> tuple[Averaged, Any]:
        own, new = self._rule.close_round(state.own, model)
        return _after(state._replace(own=own), model, new), new

    def served(self, state: Averaged, model: Any) -> Any:  # noqa: ARG002
        return state.average

    def keeps_something(self, state: Averaged) -> bool:
        """Of uploads: the average is made of models."""
        return self._rule.keeps_something(state.own)

    def hold(self, state: Averaged, model: Any, to_host: Move = in_memory) -> Held:
        return self._rule.hold(tuple(state), model, to_host)

    def restore(self, held: Held, model: Any, to_executor: Move | None = None) -> Averaged:
        return Averaged(*self._rule.restore(held, model, to_executor))

    def is_initial(self, held: Held, model: Any) -> bool:
        return same_bits(held, self.hold(self.init(model), model))


def _after(state: Averaged, model: Any, new: Any) -> Averaged:
    if new is model:
        return state
    return state._replace(average=blend(state.decay, state.average, 1.0 - state.decay, new), decay=1.0)
