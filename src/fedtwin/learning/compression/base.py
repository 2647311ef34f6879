"""What a compression is, and how it is used: a device sends the change of its model, x = w_n − w_download + e_n.

The edge server adds what arrives, x̂, to the model that the device had downloaded. What the compression left out is kept at the
device, e_n ← x − x̂, and added to its next change (error feedback). Counters, and the running means and variances of BatchNorm,
which would be of no use were they not whole, are sent as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.learning.layout import Floats, Layout, Weights

STATISTICS, COUNTERS = "statistics", "counters"
SENT_WHOLE = ("running_mean", "running_var")
Sizes = tuple[int, ...]
Parts = Mapping[str, NDArray[Any]]


class Part(NamedTuple):
    """One vector that travels: its type and its length."""

    dtype: type[np.generic]
    size: int


@dataclass(frozen=True)
class Scheme:
    """``parts(sizes, share)``: what travels of tensors of these sizes, by name. ``encode(change, sizes, share)`` makes it of
    their change, one vector; ``decode(parts, sizes)`` makes a change of it. ``fault(parts, sizes)`` is why no device of ours
    can have sent it. ``share`` is ``learning.top_k``. ``feeds_back``: what is left out is worth sending later.
    """

    parts: Callable[[Sizes, float], dict[str, Part]]
    encode: Callable[[Floats, Sizes, float], dict[str, NDArray[Any]]]
    decode: Callable[[Parts, Sizes], Floats]
    fault: Callable[[Parts, Sizes], str | None]
    feeds_back: bool = True


class Sent(NamedTuple):
    """What travels of an upload, and e_n when it has; None without error feedback."""

    parts: dict[str, NDArray[Any]]
    left_out: Floats | None


class Compressor:
    """A scheme for the models of one layout: both ends, the device's and the edge server's."""

    def __init__(self, scheme: Scheme, layout: Layout, share: float, *, feeds_back: bool = True) -> None:
        self._scheme, self._layout, self._share = scheme, layout, share
        self._feeds_back = feeds_back and scheme.feeds_back
        floats = [entry for entry in layout.entries if not entry.counter]
        whole = [entry.name.rpartition(".")[2] in SENT_WHOLE for entry in floats]
        self._sizes = tuple(entry.size for entry, alone in zip(floats, whole, strict=True) if entry.size and not alone)
        self._changed = np.repeat(~np.array(whole, bool), [entry.size for entry in floats])
        self.parts = scheme.parts(self._sizes, share)
        for name, part in ((STATISTICS, Part(np.float32, self._whole_size)), (COUNTERS, Part(np.int64, layout.counter_size))):
            if part.size:
                self.parts[name] = part

    @property
    def error_size(self) -> int:
        """How long e_n is."""
        return sum(self._sizes)

    @property
    def _whole_size(self) -> int:
        return self._layout.float_size - self.error_size

    @property
    def bits(self) -> int:
        """Of one upload, without names."""
        return sum(8 * np.dtype(part.dtype).itemsize * part.size for part in self.parts.values())

    def send(self, start: Weights, trained: Weights, left_out: Floats | None = None) -> Sent:
        """x = w_n − w_download + e_n, compressed; e_n ← x − x̂. Values that are not finite stay so, and are refused."""
        with np.errstate(over="ignore", invalid="ignore"):
            change = trained.floats[self._changed] - start.floats[self._changed]
            if left_out is not None:
                change += left_out
            parts = self._scheme.encode(change, self._sizes, self._share)
            error = change - self._scheme.decode(parts, self._sizes) if self._feeds_back else None
        if STATISTICS in self.parts:
            parts[STATISTICS] = trained.floats[~self._changed]
        if COUNTERS in self.parts:
            parts[COUNTERS] = trained.counters
        return Sent(parts, error)

    def receive(self, start: Weights, parts: Parts) -> Weights:
        """w_download + x̂, and what came whole."""
        floats = np.array(start.floats)
        with np.errstate(over="ignore", invalid="ignore"):
            floats[self._changed] += self._scheme.decode(parts, self._sizes)
        if STATISTICS in self.parts:
            floats[~self._changed] = parts[STATISTICS]
        return Weights(floats, np.array(parts[COUNTERS]) if COUNTERS in self.parts else start.counters)

    def fault(self, parts: Parts) -> str | None:
        """Why these, which have the right types and lengths, are no upload; values that are not finite among them."""
        for name, part in parts.items():
            if np.issubdtype(part.dtype, np.floating) and not np.isfinite(part).all():
                return f"not finite: {name} has NaN or infinite values"
        return self._scheme.fault(parts, self._sizes)
