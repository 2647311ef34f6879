"""Eclipse Ditto's filter language (RQL): ``and(eq(attributes/name,"a"),gt(features/link/properties/gain,1e-9))``.

A filter is parsed once into a tree, which is asked about columns: one list of values per path, one value per thing.
"""

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Column = Sequence[Any]
Columns = Callable[[str], Column]
DEEPEST, MOST_TOKENS = 50, 500
TOKEN = re.compile(r'\s*(?:([(),])|("(?:[^"\\]|\\.)*")|([^\s(),"]+))')
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?")
WORDS = {"true": True, "false": False, "null": None}
ORDERED = {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}
LOGIC, COMPARE, TEXT = ("and", "or", "not"), ("eq", "ne", *ORDERED), ("like", "ilike")


class NotRqlError(ValueError):
    """A filter that is none, and why."""


@dataclass(frozen=True)
class Filter:
    """An operator; ``path`` and ``values`` of one that compares, ``parts`` of one that joins others."""

    operator: str
    path: str = ""
    values: tuple[Any, ...] = ()
    parts: "tuple[Filter, ...]" = ()

    def matches(self, columns: Columns, count: int) -> list[bool]:
        """Of every thing whether it matches."""
        if self.operator in LOGIC:
            of_parts = [part.matches(columns, count) for part in self.parts]
            if self.operator == "not":
                return [not found for found in of_parts[0]]
            return [(all if self.operator == "and" else any)(row) for row in zip(*of_parts, strict=True)]
        column = columns(self.path)
        if self.operator == "exists":
            return [value is not None for value in column]
        if self.operator in TEXT:
            same = _folded if self.operator == "ilike" else str
            pattern = same(self.values[0])
            return [isinstance(value, str) and _like(same(value), pattern) for value in column]
        if self.operator == "in":
            return [any(_equal(value, wanted) for wanted in self.values) for value in column]
        return [_compare(self.operator, value, self.values[0]) for value in column]

    def __str__(self) -> str:
        """The filter as it is written."""
        if self.operator in LOGIC:
            return f"{self.operator}({','.join(map(str, self.parts))})"
        written = [self.path, *(json.dumps(value, ensure_ascii=False) for value in self.values)]
        return f"{self.operator}({','.join(written)})"


def parse(text: str) -> Filter:
    """The filter, or ``NotRqlError`` with what is wrong and where."""
    tokens = _tokens(text)
    if len(tokens) > MOST_TOKENS:
        raise NotRqlError(f"it has more than {MOST_TOKENS} parts")
    found, rest = _query(tokens, 0, 0)
    if rest != len(tokens):
        raise NotRqlError(f"{tokens[rest]!r} follows its end")
    return found


def _tokens(text: str) -> list[str]:
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise NotRqlError(f"{text[place : place + 20]!r} cannot be read")
        tokens.append(match.group(match.lastindex or 0))
        place = match.end()
    return tokens


def _query(tokens: list[str], place: int, depth: int) -> tuple[Filter, int]:
    operator = _at(tokens, place)
    if depth > DEEPEST:
        raise NotRqlError(f"it is nested more than {DEEPEST} deep")
    if operator not in (*LOGIC, *COMPARE, *TEXT, "in", "exists"):
        allowed = ", ".join((*LOGIC, *COMPARE, *TEXT, "in", "exists"))
        raise NotRqlError(f"{operator!r} is no operator: these are {allowed}")
    place = _expect(tokens, place + 1, "(")
    if operator in LOGIC:
        parts, place = _parts(tokens, place, depth)
        if operator == "not" and len(parts) != 1:
            raise NotRqlError("not takes one filter")
        return Filter(operator, parts=tuple(parts)), place
    path, place = _at(tokens, place), place + 1
    if path in "(),":
        raise NotRqlError(f"{operator} needs a path first, not {path!r}")
    path = str(_value(path)) if path.startswith('"') else path
    values: list[Any] = []
    while _at(tokens, place) == ",":
        values.append(_value(_at(tokens, place + 1)))
        place += 2
    place = _expect(tokens, place, ")")
    _check(operator, values)
    return Filter(operator, path.lstrip("/"), tuple(values)), place


def _parts(tokens: list[str], place: int, depth: int) -> tuple[list[Filter], int]:
    parts = []
    while True:
        part, place = _query(tokens, place, depth + 1)
        parts.append(part)
        if _at(tokens, place) != ",":
            return parts, _expect(tokens, place, ")")
        place += 1


def _check(operator: str, values: list[Any]) -> None:
    wanted = 0 if operator == "exists" else 1
    if (operator != "in" and len(values) != wanted) or (operator == "in" and not values):
        raise NotRqlError(f"{operator} takes a path and {'at least one value' if operator == 'in' else f'{wanted} values'}")
    if operator in TEXT and not isinstance(values[0], str):
        raise NotRqlError(f'{operator} compares with a text in "quotes"')


def _value(token: str) -> Any:
    if token in WORDS:
        return WORDS[token]
    if token.startswith('"'):
        try:
            return json.loads(token, strict=False)
        except ValueError:
            raise NotRqlError(f"{token[:40]} is no text: a backslash stands before a quote or a backslash") from None
    if NUMBER.fullmatch(token):
        return float(token) if any(mark in token for mark in ".eE") else int(token)
    raise NotRqlError(f'{token[:40]!r} is no value: numbers, "texts", true, false and null are')


def _at(tokens: list[str], place: int) -> str:
    if place >= len(tokens):
        raise NotRqlError("it ends too early")
    return tokens[place]


def _expect(tokens: list[str], place: int, wanted: str) -> int:
    if _at(tokens, place) != wanted:
        raise NotRqlError(f"{wanted!r} is expected where {tokens[place][:40]!r} stands")
    return place + 1


def _folded(text: str) -> str:
    """Without regard to case, sign by sign."""
    return "".join(low if len(low := sign.lower()) == 1 else sign for sign in text)


def _like(text: str, pattern: str) -> bool:
    """``*`` is any text, ``?`` one character."""
    if "?" in pattern:
        return _like_sign_by_sign(text, pattern)
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    place, end = len(first), len(text) - len(others[-1])
    if place > end or not text.startswith(first) or not text.endswith(others.pop()):
        return False
    for piece in others:
        if (found := text.find(piece, place, end)) < 0:
            return False
        place = found + len(piece)
    return True


def _like_sign_by_sign(text: str, pattern: str) -> bool:
    """In no more steps than the two lengths multiplied, whatever the pattern."""
    place, sign, star, resume = 0, 0, -1, 0
    while place < len(text):
        if sign < len(pattern) and pattern[sign] == "*":
            star, resume, sign = sign, place, sign + 1
        elif sign < len(pattern) and pattern[sign] in ("?", text[place]):
            place, sign = place + 1, sign + 1
        elif star >= 0:
            resume += 1
            place, sign = resume, star + 1
        else:
            return False
    return not pattern[sign:].strip("*")


def _equal(value: Any, wanted: Any) -> bool:
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _compare(operator: str, value: Any, wanted: Any) -> bool:
    """Numbers with numbers and texts with texts; what is not there is larger and smaller than nothing."""
    if operator in ("eq", "ne"):
        return _equal(value, wanted) == (operator == "eq")
    kinds = (str,) if isinstance(wanted, str) else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or isinstance(wanted, bool) or wanted is None:
        return False
    return bool(ORDERED[operator](value, wanted))
