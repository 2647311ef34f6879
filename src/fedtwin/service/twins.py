"""All runs that are served, by their ids."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedtwin.service.access import Access
from fedtwin.service.asking import Asking
from fedtwin.service.names import slugs
from fedtwin.service.served import Served
from fedtwin.service.telling import UnansweredError

OPEN = Access()


@dataclass(frozen=True)
class Broker:
    """Where orders to the edge servers of live runs go; ``beside``: to the broker that the edge server has started itself."""

    servers: tuple[str, ...]
    credentials: Path | None = None
    insecure: bool = False
    beside: bool = False


class Twins:
    """``trust``: code of a run's owner may be run for explanations and what-if."""

    def __init__(
        self,
        folders: Iterable[Path],
        *,
        trust: bool = False,
        broker: Broker | None = None,
        access: Access = OPEN,
        tls: bool = False,
    ) -> None:
        self.runs = {name: Served(name, folder) for name, folder in slugs(folders).items()}
        self.trust, self.broker, self.access, self.tls = trust, broker, access, tls
        self.asking = Asking()

    @contextmanager
    def opened(self) -> Iterator["Twins"]:
        for served in self.runs.values():
            served.start()
        try:
            yield self
        finally:
            self.asking.close()
            for served in self.runs.values():
                served.close()

    def still_read(self, patience_s: float = 1.0) -> bool:
        """Whether a run is still being read, a moment after all were told to end."""
        end = time.monotonic() + patience_s
        return any(served.still_reads(max(end - time.monotonic(), 0.0)) for served in self.runs.values())

    def without_folders(self, sentence: str) -> str:
        for served in self.runs.values():
            sentence = served.without_folder(sentence)
        return sentence

    def run(self, name: str) -> Served:
        if name not in self.runs:
            raise UnansweredError(404, f"There is no run {name[:100]!r}: served are {', '.join(self.runs)}.")
        return self.runs[name]
