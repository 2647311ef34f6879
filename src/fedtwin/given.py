"""What a caller gives from Python, or one sentence where it is of another kind than is needed."""

import errno
import operator
import os
from collections.abc import Iterable, Mapping
from math import nan
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
    try:
        os.lstat(value)
    except ValueError as error:
        raise FedtwinError(f"{name} = {fspath(value)!r} is no path: {error}.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise FedtwinError(f"{name} = '{fspath(value)[:60]}…' is too long for a path on this system.") from None
    return Path(value)


def path_or_none(name: str, value: Any) -> Path | None:
    return None if value is None else path_given(name, value)


def whole_number(value: Any) -> int | None:
    """Also NumPy's; None where it is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def function_or_none(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise wrong_kind(name, value, "a function")
    return value


def truth_given(name: str, value: Any) -> bool:
    """True or False: what only looks like one of them is another mistake."""
    if not isinstance(value, bool):
        raise wrong_kind(name, value, "True or False")
    return value


def truth_or_function(name: str, value: Any) -> Any:
    if not isinstance(value, bool) and not callable(value):
        raise wrong_kind(name, value, "True, False or a function")
    return value


def object_with(name: str, value: Any, methods: Iterable[str], needed: str) -> Any:
    """None, or what has these methods."""
    if value is not None and not all(callable(getattr(value, method, None)) for method in methods):
        raise wrong_kind(name, value, needed)
    return value


def rounds_given(name: str, values: Any, last: int) -> tuple[int, ...]:
    """Rounds of a run."""
    found = [whole_number(value) for value in values] if isinstance(values, Iterable) else [None]
    rounds = [round_ for round_ in found if round_ is not None and 1 <= round_ <= last]
    if len(rounds) < len(found):
        raise FedtwinError(f"{name} = {values!r} is not allowed: it must be a list of rounds, whole numbers from 1 to {last}.")
    return tuple(rounds)


def seconds_given(name: str, value: Any) -> float:
    """0 or more; not NaN."""
    try:
        seconds = nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = nan
    if not seconds >= 0.0:
        raise FedtwinError(f"{name} = {value!r} is not allowed: it must be 0 or more seconds.")
    return seconds


def names_given(name: str, value: Any) -> list[str]:
    """One name, or several; text may have commas between them."""
    names: list[Any] = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [None]
    if not all(isinstance(one, str) for one in names):
        raise wrong_kind(name, value, "a name or a list of names")
    return [one.strip() for several in names for one in several.split(",") if one.strip()]


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
