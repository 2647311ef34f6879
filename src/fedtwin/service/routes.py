"""The table of routes: it drives routing, the checks of parameters, and the OpenAPI document."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote

from fedtwin.service.parameters import Parameter
from fedtwin.service.telling import UnansweredError

if TYPE_CHECKING:
    from fedtwin.service.twins import Twins

Role = Literal["anyone", "viewer", "operator"]


@dataclass(frozen=True)
class Asked:
    """A request whose parameters are checked. ``who`` names the token it came with; ``gone``: nobody waits any more."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any = None
    who: str | None = None
    role: str = "viewer"
    segments: Sequence[str] = ()
    gone: threading.Event = field(default_factory=threading.Event)


class Answer(NamedTuple):
    """What is sent back, if it is more than JSON with status 200."""

    content: Any
    status: int = 200
    headers: Mapping[str, str] = {}
    media_type: str = "application/json"


@dataclass(frozen=True)
class Route:
    """``path`` names its parameters in braces. What is ``tagged`` has an ETag; what is
    answered ``at_once`` waits for no thread. One that ``leaves`` stops when nobody waits for its answer any more.
    """

    method: str
    path: str
    summary: str
    answer: "Callable[[Twins, Asked], Any]"
    parameters: Sequence[Parameter] = ()
    role: Role = "viewer"
    group: str = "runs"
    gives: str = "object"
    body: Mapping[str, Any] | None = None
    tagged: bool = False
    at_once: bool = False
    leaves: bool = False
    media_types: Sequence[str] = field(default=("application/json",))

    @property
    def segments(self) -> list[str]:
        return self.path.strip("/").split("/")


def segments_of(raw_path: str) -> list[str]:
    """Decoded one by one, so that a name may have a slash."""
    try:
        return [unquote(part, errors="strict") for part in raw_path.split("?")[0].removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise UnansweredError(400, "The address is not UTF-8.") from None


def find(routes: Sequence[Route], method: str, segments: list[str]) -> tuple[Route, dict[str, str]]:
    """The route of an address, and what its braces hold."""
    fits = [(route, held) for route in routes if (held := _held(route.segments, segments)) is not None]
    wanted = "GET" if method == "HEAD" else method
    for route, held in fits:
        if route.method == wanted:
            return route, held
    if fits:
        allowed = ", ".join(sorted({route.method for route, _ in fits}))
        raise UnansweredError(405, f"{method} is not allowed here: {allowed} is.", {"Allow": allowed})
    raise UnansweredError(404, "There is nothing at this address: /openapi.json says what there is.")


def _held(wanted: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(segments) != len(wanted):
        return None
    held: dict[str, str] = {}
    for part, given in zip(wanted, segments, strict=True):
        if part.startswith("{") and given:
            held[part[1:-1]] = given
        elif part != given:
            return None
    return held
