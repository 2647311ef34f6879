"""What is said where a policy of the user's own fails: one sentence with round, device, and the line in the user's file."""

import reprlib
import sysconfig
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

import fedtwin
from fedtwin.errors import FedtwinError
from fedtwin.parts import name_looked_for_in_nothing
from fedtwin.policies.base import View

LONGEST_MESSAGE = 300
LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(fedtwin.__file__).parent))
DECLARED = "view.prediction needs predicts=True, view.state a state, knobs.settings settings"
INSTALLED = {"site-packages", "dist-packages"}


class NoNumberError(TypeError):
    """A score that is none."""


def score_of(name: str, score: Callable[..., Any], view: View, *more: Any) -> float:
    """The score as a float, NaN included; whatever else the policy does instead is one sentence."""
    try:
        return as_number(score(view, *more))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit() in a score is a failure too
        raise FedtwinError(sentence_of(name, view, error, score)) from None


def as_number(score: Any) -> float:
    """Numbers of Python and NumPy become floats; anything else is no score."""
    if type(score) is float:
        return score
    if not isinstance(score, Real | np.bool_):
        raise NoNumberError(f"it returned {reprlib.repr(score)} ({type(score).__name__}, not a number)")
    try:
        return float(score)
    except OverflowError:
        raise NoNumberError(f"it returned a number ({type(score).__name__}) that is too large for a float") from None


def sentence_of(name: str, view: View, error: BaseException, score: Callable[..., Any] | None = None) -> str:
    """``score`` is where to look if the error came before its first line."""
    return sentence_of_failure(name, view.round, view.device, error, score)


def sentence_of_failure(name: str, round_: int, device: int, error: BaseException, code: Callable[..., Any] | None) -> str:
    place = _place(error, code)
    where = f" ({place[0]}, line {place[1]})" if place is not None else ""
    return f"policy.name = {name!r} failed in round {round_} for device {device}: {_what(error)}{where}."


def sentence_of_nan(name: str, round_: int) -> str:
    return f"policy.name = {name!r} gives every idle device the score NaN in round {round_}: at least one must be a number."


def sentence_of_chance(name: str, view: View, one: float, other: float) -> str:
    return (
        f"policy.name = {name!r} gives device {view.device} two scores in round {view.round}, {one!r} and {other!r}: "
        "a score may depend on its arguments only (random numbers of that kind are in fedtwin.draws)."
    )


def _what(error: BaseException) -> str:
    if (name := name_looked_for_in_nothing(error)) is not None:
        return f"it looks for {name!r} in what its Policy does not declare: {DECLARED}"
    try:
        message = " ".join(str(error).split()).rstrip(".")
    except Exception:
        message = ""
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[:LONGEST_MESSAGE]} …"
    if isinstance(error, NoNumberError):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _place(error: BaseException, score: Callable[..., Any] | None) -> tuple[str, int] | None:
    """The last line of the traceback in a file of the user's; of an installed policy, in the file of the score."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    code = getattr(score, "__code__", None) or getattr(getattr(score, "__call__", None), "__code__", None)  # noqa: B004
    users = [place for place in frames if not _of_a_library(place[0])]
    users = users or [place for place in frames if code is not None and place[0] == code.co_filename]
    if users:
        return users[-1]
    return (code.co_filename, code.co_firstlineno) if code is not None else None


def _of_a_library(file: str) -> bool:
    return file.startswith(("<", *LIBRARIES)) or not INSTALLED.isdisjoint(Path(file).parts)
