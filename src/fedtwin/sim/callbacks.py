"""What a run tells while it is played: functions and objects of the user's are called with rows, evaluations, the result."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedtwin.errors import FedtwinError
from fedtwin.given import function_or_none
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records import Row

if TYPE_CHECKING:
    from fedtwin.sim.result import Result

OnRound = Callable[[Row], Any]
OnEvaluation = Callable[[Evaluation], Any]
OnEnd = Callable[["Result"], Any]
MOMENTS = ("on_round", "on_evaluation", "on_end")


class Callback:
    """A base for objects that follow a run: override what you need, and give them as ``simulate(callbacks=[…])``.

    An object of any other class will do too, if it has at least one of these methods. What a method returns is ignored. What it
    raises ends the run as it is, traceback included; a run that has a folder can be resumed from there. A resumed run is played
    again from its first round, and tells of all of them.
    """

    def on_round(self, row: Row) -> None:
        """After every decision, in the order of ``rounds.parquet``: declines have a row too, the first dispatches have none.

        The readable engine tells of a row as soon as it is made. The compiled one runs on meanwhile: it tells of the same rows
        in the same order, in parts of up to 10,000, several times a second.
        """

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After every evaluation of the model on the test set, in their order. The run waits for it, so it may take longer."""

    def on_end(self, result: "Result") -> None:
        """Once, when the run is finished, and its folder written."""


class Listeners:
    """All who are told, in the order they were given. One that takes no part in something costs nothing."""

    def __init__(
        self,
        callbacks: Any = (),
        on_round: OnRound | None = None,
        on_evaluation: OnEvaluation | None = None,
        on_end: OnEnd | None = None,
    ) -> None:
        objects = _several(callbacks)
        self._on_round = _heard_by(objects, "on_round", on_round)
        self._on_evaluation = _heard_by(objects, "on_evaluation", on_evaluation)
        self._on_end = _heard_by(objects, "on_end", on_end)
        self.rows_told, self._evaluations_told = 0, 0

    @property
    def of_rounds(self) -> bool:
        return bool(self._on_round)

    @property
    def of_evaluations(self) -> bool:
        return bool(self._on_evaluation)

    def tell_row(self, row: Row) -> None:
        self.rows_told += 1
        for listener in self._on_round:
            listener(row)

    def tell_evaluations(self, so_far: Sequence[Evaluation]) -> None:
        """Those that were not told yet."""
        while self._evaluations_told < len(so_far):
            evaluation = so_far[self._evaluations_told]
            self._evaluations_told += 1
            for listener in self._on_evaluation:
                listener(evaluation)

    def tell_end(self, result: "Result") -> None:
        for listener in self._on_end:
            listener(result)


def _several(callbacks: Any) -> list[Any]:
    """One object, or several."""
    objects = [callbacks] if _follows(callbacks) else list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for one in objects:
        if isinstance(one, type) or not _follows(one):
            raise FedtwinError(
                f"callbacks = {one!r} is no callback: an object with a method on_round, on_evaluation or on_end is needed."
            )
    return objects


def _follows(one: Any) -> bool:
    return any(callable(getattr(one, name, None)) for name in MOMENTS)


def _heard_by(objects: Iterable[Any], name: str, function: Any) -> tuple[Callable[[Any], Any], ...]:
    """The methods of a name, those that are not overridden left out, and the function given by itself."""
    function = function_or_none(name, function)
    methods = [method for one in objects if callable(method := getattr(one, name, None))]
    heard = [method for method in methods if getattr(method, "__func__", None) is not getattr(Callback, name)]
    return tuple(heard) if function is None else (*heard, function)
