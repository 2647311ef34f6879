"""What is known of a value before it is computed: enough to say whether compiled code makes the same number of it.

Whole numbers are 64 bits wide in compiled code, without end in Python; so every whole number has a bound. A value that is
whole on one path and real on another is real in compiled code; that is the same number, but of −0 and 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

MOST_EXACT = 2**53
MOST_WHOLE = 2**63 - 1
BOUND_OF_FIELDS = {"seed": MOST_WHOLE}
BOUND_OF_OTHERS = 10**12


class UnclearError(Exception):
    """Why a function is not compiled."""


@dataclass(frozen=True)
class Whole:
    """An int, not larger than ``bound`` on either side."""

    bound: int


@dataclass(frozen=True)
class Real:
    """A float."""


@dataclass(frozen=True)
class Truth:
    """A bool."""


@dataclass(frozen=True)
class WholeOrReal:
    """An int or a float, as the case may be."""

    bound: int


@dataclass(frozen=True)
class Word:
    """64 bits of ``fedtwin.draws``."""


@dataclass(frozen=True)
class Tuple:
    """A tuple of known kinds."""

    items: tuple["Kind", ...]


@dataclass(frozen=True)
class Record:
    """A NamedTuple of fedtwin's, such as View."""

    name: str
    fields: tuple[tuple[str, "Kind"], ...]


Kind = Whole | Real | Truth | WholeOrReal | Word | Tuple | Record
Number = Whole | Real | Truth | WholeOrReal


def kind_of_value(value: Any) -> Kind | None:
    """The kind of a constant: only Python's own numbers, and tuples of them. None for anything else."""
    if type(value) is bool:
        return Truth()
    if type(value) is int:
        return Whole(abs(value)) if abs(value) <= MOST_WHOLE else None
    if type(value) is float:
        return Real()
    if type(value) is tuple and value:
        items = [kind_of_value(item) for item in value]
        return Tuple(tuple(item for item in items if item is not None)) if None not in items else None
    return None


Declared = Mapping[str, Any]
"""NamedTuple classes that stand behind the arguments and fields annotated ``Any``, by their names; nothing where none does."""


def kinds_of_arguments(function: Any, declared: Declared) -> list[Kind]:
    """The kinds that a function's annotations promise."""
    hints, code = get_type_hints(function), function.__code__
    return [kind_of_annotation(hints.get(name), name, declared) for name in code.co_varnames[: code.co_argcount]]


def kind_of_annotation(annotation: Any, name: str, declared: Declared) -> Kind:
    """Of an argument or a field of that name."""
    if annotation is Any:
        annotation = declared.get(name)
        if annotation is None:
            return Tuple(())
    if name == "stream":
        return Word()
    if annotation is float:
        return Real()
    if annotation is int:
        return Whole(BOUND_OF_FIELDS.get(name, BOUND_OF_OTHERS))
    if annotation is bool:
        return Truth()
    if isinstance(annotation, type) and hasattr(annotation, "_fields"):
        hints = get_type_hints(annotation)
        fields: Any = annotation._fields
        return Record(
            annotation.__name__, tuple((field, kind_of_annotation(hints[field], field, declared)) for field in fields)
        )
    raise UnclearError(f"nothing is known of its argument {name}")


def join(one: Kind, other: Kind) -> Kind:
    """The kind of a value that has one kind on one path and the other on another."""
    if one == other:
        return one
    match one, other:
        case Whole(a), Whole(b):
            return Whole(max(a, b))
        case ((Whole() | WholeOrReal() | Real()), (Whole() | WholeOrReal() | Real())):
            return WholeOrReal(max(getattr(one, "bound", 0), getattr(other, "bound", 0)))
        case Tuple(a), Tuple(b) if len(a) == len(b):
            return Tuple(tuple(join(x, y) for x, y in zip(a, b, strict=True)))
    raise UnclearError(f"a value is {words(one)} on one path and {words(other)} on another")


def as_real(kind: Kind) -> None:
    """Refuses what does not become the same float in compiled code."""
    if not isinstance(kind, Number):
        raise UnclearError(f"{words(kind)} stands where a number is needed")
    if getattr(kind, "bound", 0) > MOST_EXACT:
        raise UnclearError("a whole number may exceed 2**53, so float() would round it: make it a float before")


def words(kind: Kind) -> str:
    match kind:
        case Whole():
            return "a whole number"
        case Real():
            return "a real number"
        case Truth():
            return "true or false"
        case WholeOrReal():
            return "a whole or a real number"
        case Word():
            return "a random word"
        case Tuple():
            return "a tuple"
        case Record(name=name):
            return f"a {name}"
