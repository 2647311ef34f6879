"""What runs are compared by: any number of their summaries, and the time or energy until an accuracy is reached."""

import difflib
from collections.abc import Sequence
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.experiments.analysis.summaries import COLUMNS, TO_ACCURACY
from fedtwin.given import names_given
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records.reading import OF_TRAINING


def chosen_metrics(metrics: str | Sequence[str] | None, accuracy: float | None, *, trains: bool) -> tuple[str, ...]:
    """The metrics asked for, or the cost; with an accuracy also the time and the energy until it is reached.

    One that the runs will not have is one sentence.
    """
    asked = names_given("metrics", "mean_cost" if metrics is None or metrics == [] else metrics)
    if accuracy is not None:
        if isinstance(accuracy, bool) or not isinstance(accuracy, int | float) or not 0.0 < accuracy <= 1.0:
            raise FedtwinError(f"accuracy = {accuracy!r} is not allowed: it must be above 0 and at most 1, such as 0.9.")
        if not trains:
            raise FedtwinError(f"accuracy = {accuracy:g} asks for runs that train a model: there is no [learning] section.")
        asked += [name for name in TO_ACCURACY if name not in asked]
    for name in asked:
        _require(name, accuracy, trains=trains)
    return tuple(dict.fromkeys(asked))


def _require(name: str, accuracy: float | None, *, trains: bool) -> None:
    if name not in COLUMNS and name not in TO_ACCURACY:
        close = difflib.get_close_matches(str(name), [*COLUMNS, *TO_ACCURACY], n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise FedtwinError(f"metric {name!r} is unknown{hint}: choose from {', '.join([*COLUMNS, *TO_ACCURACY])}.")
    if not trains and (name in OF_TRAINING or name in TO_ACCURACY):
        raise FedtwinError(f"metric {name!r} is of runs that train a model: there is no [learning] section.")
    if name in TO_ACCURACY and accuracy is None:
        raise FedtwinError(f"metric {name!r} needs an accuracy to reach: say --accuracy 0.9, or accuracy=0.9.")


def to_accuracy(evaluations: Sequence[Evaluation], accuracy: float | None) -> dict[str, Any]:
    """Virtual time and energy of the first evaluation that reaches the accuracy; None where none does."""
    if accuracy is None:
        return {}
    first = next((one for one in evaluations if one.test_accuracy is not None and one.test_accuracy >= accuracy), None)
    return {name: None if first is None else float(getattr(first, column)) for name, column in TO_ACCURACY.items()}
