"""Standard output and error that cost no result: letters they lack are spelled out, and a write that fails is remembered.

So a pipe closed early, or a full disk behind ``>``, does not stop a run in the middle: it shows in the exit code.
"""

import codecs
import errno
import io
import os
import sys
import unicodedata
from typing import Any, TextIO

BAD_INPUT, CLOSED_PIPE = 2, 141
SPELLED = {"−": "-", "–": "-", "—": "-", "…": "...", "×": "x", "≤": "<=", "≥": ">=", "█": "#", "λ": "lambda", "Λ": "Lambda"}
SPELL = "fedtwin.spell"


class _Patient(io.FileIO):
    """The first failure is kept, and nothing is written after it."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return len(data)


class Terminal:
    """From now on ``sys.stdout`` and ``sys.stderr`` raise nothing."""

    def __init__(self) -> None:
        codecs.register_error(SPELL, _spell)
        self._files: list[_Patient] = []
        sys.stdout, sys.stderr = self._patient(sys.stdout), self._patient(sys.stderr)

    def exit_code(self, code: int) -> int:
        """The same where all was written or there was trouble anyway; else what became of the output."""
        sys.stdout.flush()
        failure = next((file.failure for file in self._files if file.failure is not None), None)
        if failure is None or code != 0:
            return code
        if failure.errno in (errno.EPIPE, errno.ECONNRESET):
            return CLOSED_PIPE
        print(f"error: The output cannot be written: {failure.strerror}.", file=sys.stderr)
        return BAD_INPUT

    def _patient(self, stream: TextIO | None) -> TextIO:
        if stream is None:  # closed by whoever started us
            return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
        if not isinstance(stream, io.TextIOWrapper) or os.name != "posix":
            return stream
        stream.flush()
        file = _Patient(stream.fileno(), "w", closefd=False)
        self._files.append(file)
        by_line = stream.line_buffering or stream.write_through
        return io.TextIOWrapper(io.BufferedWriter(file), stream.encoding, SPELL, line_buffering=by_line)


def in_letters_of(encoding: str, text: str) -> str:
    """The text as it appears where only this encoding can be shown."""
    codecs.register_error(SPELL, _spell)
    return text.encode(encoding, SPELL).decode(encoding)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_spelled, error.object[error.start : error.end])), error.end


def _spelled(sign: str) -> str:
    if sign in SPELLED:
        return SPELLED[sign]
    kind, _, letter = unicodedata.name(sign, "").partition(" LETTER ")
    if kind in ("GREEK CAPITAL", "GREEK SMALL") and " " not in letter:
        return letter.capitalize() if kind.endswith("CAPITAL") else letter.lower()
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
