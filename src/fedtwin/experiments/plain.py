"""Data as JSON has it."""

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The same data; infinity and NaN, which JSON lacks, are null."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
