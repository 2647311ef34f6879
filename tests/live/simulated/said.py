"""What everybody in a simulated fleet has logged, with who and when."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.live.simulated.loop import PROCESS, VirtualLoop

LOG = logging.getLogger("fedtwin.live")


@dataclass(frozen=True)
class Said:
    at_s: float
    who: str
    level: str
    message: str
    fields: dict[str, object]

    def __str__(self) -> str:
        fields = " ".join(f"{key}={value}" for key, value in self.fields.items())
        return f"{self.at_s:9.3f}  {self.who:10} {self.level:7} {self.message}  {fields}".rstrip()


class Listening(logging.Handler):
    """What everybody has logged, with who and when."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(logging.DEBUG)
        self._loop, self._begun_s = loop, loop.time()
        self.said: list[Said] = []

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        who = "" if process is None else process.name
        at_s = self._loop.time() - self._begun_s
        self.said.append(Said(at_s, who, record.levelname.lower(), record.getMessage(), getattr(record, "fields", {})))


@contextmanager
def listening(loop: VirtualLoop, level: int = logging.INFO) -> Iterator[Listening]:
    handler, before = Listening(loop), (LOG.level, LOG.propagate, LOG.handlers[:])
    LOG.handlers[:], LOG.propagate = [handler], False
    LOG.setLevel(level)
    try:
        yield handler
    finally:
        _, LOG.propagate, LOG.handlers[:] = before
        LOG.setLevel(before[0])
