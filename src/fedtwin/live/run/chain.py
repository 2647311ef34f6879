"""Lines of a ledger are chained: each ends with digits that follow from those of the line before and from its own event.

``{"at_s":1.5,"kind":"resumed","chain":"90a5…"}``: the first sixteen hexadecimal digits of the SHA-256 of the line before's
digits (of nothing, for the first line) and the event as it stands there, ``{"at_s":1.5,"kind":"resumed"}``.
"""

import hashlib
from collections.abc import Iterable

_MARK, _END, _DIGITS = b',"chain":"', b'"}\n', 16
_LENGTH = len(_MARK) + _DIGITS + len(_END)


def sealed(event: bytes, before: str) -> tuple[bytes, str]:
    """The line of an event (a JSON object) after one with the digits ``before``, and its own digits."""
    digits = _digits(event, before)
    return event[:-1] + _MARK + digits.encode() + _END, digits


def unsealed(line: bytes) -> tuple[bytes, str | None]:
    """The event of a whole line, and the digits it carries; None of one that was written before lines were chained."""
    if line[-_LENGTH:].startswith(_MARK) and line.endswith(_END):
        return line[:-_LENGTH] + b"}", line[-_DIGITS - len(_END) : -len(_END)].decode("ascii", "replace")
    return line, None


def follows(event: bytes, digits: str, before: str) -> bool:
    """Whether these are the digits of the event after a line with the digits ``before``."""
    return _digits(event, before) == digits


def last_of(lines: Iterable[bytes], before: str) -> str | None:
    """The digits of the last of these lines, if all of them follow, the first from ``before``; None if one does not."""
    last, sha256 = before.encode(), hashlib.sha256
    for line in lines:
        digits = line[-_DIGITS - len(_END) : -len(_END)]
        if sha256(last + line[:-_LENGTH] + b"}").hexdigest()[:_DIGITS].encode() != digits or line[-_LENGTH:] != (
            _MARK + digits + _END
        ):
            return None
        last = digits
    return last.decode()


def _digits(event: bytes, before: str) -> str:
    return hashlib.sha256(before.encode() + event).hexdigest()[:_DIGITS]
