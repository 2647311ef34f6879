"""What a caller gives from Python, or one sentence where it is of another kind than is needed."""

import operator
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from fedtwin.errors import FedtwinError


def wrong_kind(name: str, value: Any, needed: str) -> FedtwinError:
    """The sentence about a value that is of no use there."""
    return FedtwinError(f"{name} = {value!r} is a {type(value).__name__}: {needed} is needed.")


def path_given(name: str, value: Any) -> Path:
    """A path, as text or as ``pathlib`` has it."""
    if not isinstance(value, str | PathLike) or not isinstance(fspath(value), str):
        raise wrong_kind(name, value, "a path")
    return Path(value)


def path_or_none(name: str, value: Any) -> Path | None:
    return None if value is None else path_given(name, value)


def whole_number(value: Any) -> int | None:
    """Also NumPy's; None where it is none."""
    return None if isinstance(value, bool) or not hasattr(value, "__index__") else operator.index(value)


def rounds_given(name: str, values: Any, last: int) -> tuple[int, ...]:
    """Rounds of a run."""
    found = [whole_number(value) for value in values] if isinstance(values, Iterable) else [None]
    rounds = [round_ for round_ in found if round_ is not None and 1 <= round_ <= last]
    if len(rounds) < len(found):
        raise FedtwinError(f"{name} = {values!r} is not allowed: it must be a list of rounds, whole numbers from 1 to {last}.")
    return tuple(rounds)


def seconds_given(name: str, value: Any) -> float:
    """0 or more; not NaN."""
    if isinstance(value, bool) or not hasattr(value, "__float__") or not float(value) >= 0.0:
        raise FedtwinError(f"{name} = {value!r} is not allowed: it must be 0 or more seconds.")
    return float(value)


def settings_given(name: str, value: Any) -> dict[str, Any]:
    """``{"section.key": value}``; None is nothing."""
    if value is not None and not isinstance(value, Mapping):
        raise wrong_kind(name, value, "a dictionary of settings")
    return dict(value or {})


def workers_given(value: Any) -> int | None:
    """How many processes; None is as many as there are cores."""
    workers = whole_number(value)
    if value is not None and (workers is None or workers < 1):
        raise FedtwinError(f"workers = {value!r} is not allowed: it must be a number of processes, at least 1.")
    return workers
