"""Who may read and who may steer: tokens with a role, and what a browser must not be talked into."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.live.wire.addresses import is_loopback
from fedtwin.service.routes import Role
from fedtwin.service.telling import UnansweredError

COOKIE = "fedtwin_token"
LINE = re.compile(r"([A-Za-z0-9_.@-]{1,64})\s+(viewer|operator)\s+([A-Za-z0-9_.~+/=-]{20,200})")
CHANGES = ("POST", "PUT", "DELETE", "PATCH")


@dataclass(frozen=True)
class Person:
    """Who asks: the name of a token, or of nobody in particular on this machine."""

    name: str
    role: Literal["viewer", "operator"]


@dataclass(frozen=True)
class Access:
    """``tokens`` is None where everybody on this machine may do everything."""

    tokens: Mapping[str, Person] | None = None

    def person(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Person | None:
        """By ``Authorization: Bearer``, or by the cookie that /login has set."""
        if self.tokens is None:
            return Person("loopback", "operator")
        kind, _, given = headers.get("authorization", "").partition(" ")
        token = given.strip() if kind.lower() == "bearer" else cookies.get(COOKIE, "")
        return self.of_token(token)

    def of_token(self, token: str) -> Person | None:
        """Compared with every token there is, so that the time it takes tells nothing."""
        found = None
        for known, person in (self.tokens or {}).items():
            if hmac.compare_digest(known.encode(), token.encode("utf-8", "replace")):
                found = person
        return found

    def require(self, role: Role, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Person | None:
        """The person, if the role is enough for the route."""
        person = self.person(headers, cookies)
        if role == "anyone":
            return person
        if person is None:
            raise UnansweredError(401, "A token is needed: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
        if role == "operator" and person.role != "operator":
            raise UnansweredError(403, f"{person.name} is a viewer: this is for operators.")
        return person

    def require_own_page(self, method: str, headers: Mapping[str, str]) -> None:
        """Without tokens, only addresses of this machine are answered, and no page of another place changes anything."""
        host = headers.get("host", "")
        name = _split(f"//{host}").hostname or ""
        if self.tokens is None and not (name == "localhost" or is_loopback(name)):
            raise UnansweredError(403, f"Host = {host[:100]!r} is no address of this machine.")
        origin = headers.get("origin")
        if method in CHANGES and origin is not None and _split(origin).netloc != host:
            raise UnansweredError(403, f"Origin = {origin[:100]!r} is another place than the page's.")


def _split(address: str) -> SplitResult:
    """Nothing, where it is no address."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def read_tokens(path: Path) -> dict[str, Person]:
    """Lines of NAME, role and token; nobody but its owner may read the file."""
    try:
        mode, text = path.stat().st_mode, plain_file(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise FedtwinError(f"--tokens {str(path)!r} cannot be read: {why}.") from None
    if mode & 0o077:
        raise FedtwinError(f"--tokens {str(path)!r} can be read by others than its owner: chmod 600 it.")
    found: dict[str, Person] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise FedtwinError(
                f"--tokens {str(path)!r}, line {number}: NAME, viewer or operator, and a token of 20 characters."
            )
        name, role, token = match.groups()
        if token in found:
            raise FedtwinError(f"--tokens {str(path)!r}, line {number}: the token is that of {found[token].name} already.")
        found[token] = Person(name, "operator" if role == "operator" else "viewer")
    if not found:
        raise FedtwinError(f"--tokens {str(path)!r} has no token: one line each, NAME, viewer or operator, and the token.")
    return found
