"""Structured logs: one line per happening on standard error, with fields; as text for people, as JSON for machines."""

import json
import logging
import sys
import time

LOG = logging.getLogger("fedtwin.live")
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


def say(level: int, message: str, /, **fields: object) -> None:
    """A message with fields that can be searched for."""
    if LOG.isEnabledFor(level):
        LOG.log(level, message, extra={"fields": fields})


def set_up(level: str, form: str) -> None:
    """Called once by a command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    LOG.handlers[:] = [handler]
    LOG.propagate = False
    LOG.setLevel(level.upper())


def _stamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _stamp(record), "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps({**line, **getattr(record, "fields", {})}, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_short(value)}" for key, value in getattr(record, "fields", {}).items())
        text = f"{_stamp(record)} {record.levelname.lower():7} {printable(record.getMessage())}{'  ' if fields else ''}{fields}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def printable(text: str) -> str:
    """What a device says stays on its line, and moves no cursor: characters that are not printed are written out."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
