"""What may be asked with a request, and the checks that follow from it."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedtwin.service.telling import UnansweredError

LONGEST = 4000
INTEGER = re.compile(r"-?[0-9]{1,18}")
NUMBER = re.compile(r"-?[0-9]{1,18}([.][0-9]{1,18})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a route. ``within`` is the least and the most of a number; ``pattern`` is of a text, whole."""

    name: str
    kind: Literal["string", "integer", "number"]
    description: str
    default: Any = None
    required: bool = False
    within: tuple[float, float] | None = None
    pattern: str | None = None
    example: Any = None

    def read(self, text: str) -> Any:
        """The value, or why the text is none."""
        if self.kind == "string":
            fits = len(text) <= LONGEST and (self.pattern is None or re.fullmatch(self.pattern, text, re.ASCII) is not None)
            return text if fits and "\0" not in text else self._refuse(text)
        form, make = (INTEGER, int) if self.kind == "integer" else (NUMBER, float)
        value: float = make(text) if form.fullmatch(text) else math.nan
        low, high = self.within or (-math.inf, math.inf)
        return value if math.isfinite(value) and low <= value <= high else self._refuse(text)

    def _refuse(self, text: str) -> Any:
        allowed = self.description
        if self.within is not None:
            allowed = (
                f"{'a whole number' if self.kind == 'integer' else 'a number'} from {self.within[0]:g} to {self.within[1]:g}"
            )
        raise UnansweredError(400, f"{self.name} = {text[:100]!r} is not allowed: {allowed}.")


def checked(wanted: Iterable[Parameter], given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Every parameter of the route, with its default where it is not given; one that is unknown or given twice is an error."""
    known = {parameter.name: parameter for parameter in wanted}
    found: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise UnansweredError(400, f"The parameter {name[:100]!r} is not known: allowed here are {allowed}.")
        if name in found:
            raise UnansweredError(400, f"The parameter {name!r} is given twice.")
        found[name] = known[name].read(text)
    for name, parameter in known.items():
        if name not in found and parameter.required:
            raise UnansweredError(400, f"The parameter {name!r} is missing: {parameter.description}.")
    if found.get("from_s", 0.0) > found.get("to_s", math.inf):
        raise UnansweredError(400, f"from_s = {found['from_s']:g} is not allowed: it is after to_s = {found['to_s']:g}.")
    return {**{name: parameter.default for name, parameter in known.items()}, **found}


def schema_of(parameter: Parameter) -> Mapping[str, Any]:
    """As OpenAPI says it."""
    found: dict[str, Any] = {"type": parameter.kind}
    if parameter.within is not None:
        low, high = (int(bound) if parameter.kind == "integer" else bound for bound in parameter.within)
        found |= {"minimum": low, "maximum": high}
    if parameter.kind == "string":
        found |= {"maxLength": LONGEST} | ({"pattern": parameter.pattern} if parameter.pattern else {})
    if parameter.default is not None:
        found["default"] = parameter.default
    return found
