"""How much anybody may ask: bytes in a body and seconds for it, requests in a second, streams at a time."""

import asyncio
import json
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter
from starlette.requests import Request

from fedtwin.service.telling import UnansweredError

MOST_BYTES, BODY_S = 64 * 1024, 10.0
REQUESTS_PER_S, AT_ONCE = 100.0, 400.0
MOST_STREAMS, STREAMS_EACH = 100, 20
MOST_CLIENTS, MOST_THREADS = 10_000, 60


async def body_of(request: Request) -> Any:
    """The JSON of a request, read no further than is allowed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UnansweredError(415, "Content-Type must be application/json.")
    data = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                data += part
                if len(data) > MOST_BYTES:
                    raise UnansweredError(413, f"The body is longer than {MOST_BYTES} bytes.", {"Connection": "close"})
    except TimeoutError:
        raise UnansweredError(408, f"The body did not come within {BODY_S:g} s.", {"Connection": "close"}) from None
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise UnansweredError(400, "The body is not JSON.") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


class Limits:
    """Of every client, by its address: a bucket that fills by ``REQUESTS_PER_S`` up to ``AT_ONCE``, and its streams."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._streams: Counter[str] = Counter()
        self.threads = CapacityLimiter(MOST_THREADS)

    def require_rate(self, client: str) -> None:
        now = time.monotonic()
        with self._lock:
            left, at = self._left.pop(client, (AT_ONCE, now))
            left = min(left + (now - at) * REQUESTS_PER_S, AT_ONCE)
            self._left[client] = max(left - 1.0, 0.0), now
            if len(self._left) > MOST_CLIENTS:
                self._left.popitem(last=False)
        if left < 1.0:
            raise UnansweredError(429, f"More than {REQUESTS_PER_S:g} requests in a second: ask later.", {"Retry-After": "1"})

    def require_stream(self, client: str) -> Callable[[], None]:
        """Takes a place among the streams, at once; gives what has to be called when the stream is over."""
        with self._lock:
            if self._streams[client] >= STREAMS_EACH or self._streams.total() >= MOST_STREAMS:
                raise UnansweredError(429, f"{STREAMS_EACH} streams are open already: close one.", {"Retry-After": "5"})
            self._streams[client] += 1

        def give_back() -> None:
            with self._lock:
                self._streams[client] -= 1
                self._streams += Counter()  # those without any are forgotten

        return give_back
