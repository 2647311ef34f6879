"""What the service answers with: JSON, or a status and one sentence where it cannot."""

import json
import logging
import math
from collections.abc import Iterable
from typing import Any

from fedtwin.experiments.plain import plain


class UnansweredError(Exception):
    """A request that cannot be answered: an HTTP status, and one sentence that says why."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


def log_unexpected(where: str, error: Exception) -> None:
    """One line, whatever the error says of itself."""
    words = " ".join(str(error).split())[:300]
    logging.getLogger("fedtwin.service").error("%s: %s: %s", where, type(error).__name__, words)


def encoded(value: Any) -> bytes:
    """JSON in ASCII; infinity and NaN, which JSON lacks, are null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()


def number_or_none(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def numbers(values: Iterable[Any]) -> list[Any]:
    """A column with null for what is not a number."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    return [None if value is None or not math.isfinite(value) else value for value in listed]
