"""Edge servers and devices as processes of their own, started as a user starts them; all are gone at the end of a test."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from fedtwin.live import LocalFleet
from fedtwin.live.run.ledger import LEDGER_NAME, first_lines, segment_path
from fedtwin.supervision import Process
from tests.conftest import FEDTWIN

LIMIT_S = 90.0
ENTRIES = 64


def write_model(path: Path, entries: int = ENTRIES) -> Path:
    save_file({"layer.weight": np.linspace(-1.0, 1.0, entries, dtype=np.float32)}, path)
    return path


def until(condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """The first true value of the condition; an error if it does not come in time."""
    end = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {limit_s:g} s for: {what}"
        time.sleep(0.01)
    return found


def ledger_of(run: Path) -> list[dict[str, Any]]:
    """All whole lines, of all segments."""
    ledger = run / LEDGER_NAME
    lines = [line for first in first_lines(ledger) for line in segment_path(ledger, first).read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in lines]


def events_of(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in ledger_of(run) if event["kind"] == kind]


class Plant(LocalFleet):
    """The processes of one run in ``folder / "run"``, killed at the end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, program=FEDTWIN, stop_s=0.0)

    def edge(self, *arguments: object, **settings: object) -> Process:
        """A setting ``live__late`` is ``live.late``."""
        named = [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        return self.command("edge", "edge", "--no-evaluator", *arguments, *named)

    def url(self, limit_s: float = LIMIT_S) -> str:
        return super().url(limit_s)

    def new_edge(self, *arguments: object, **settings: object) -> Process:
        model = self.folder / "initial.safetensors"
        if not model.exists():
            write_model(model)
        return self.edge("--out", self.run, "--initial", model, *arguments, **settings)

    def wait(self, condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """The same as ``until``, with the edge server's last words where it has ended."""

        def looked() -> Any:
            found = condition()
            assert found or self.processes["edge"].poll() is None, f"{what}: the edge server ended, {self.log('edge')[-2000:]}"
            return found

        return until(looked, what, limit_s)

    def wait_for(self, kind: str, what: Callable[[dict[str, Any]], bool] | None = None, count: int = 1) -> dict[str, Any]:
        """The ``count``-th such event of the ledger."""

        def looked() -> dict[str, Any] | None:
            found = [event for event in events_of(self.run, kind) if what is None or what(event)]
            return found[count - 1] if len(found) >= count else None

        event: dict[str, Any] = self.wait(looked, kind)
        return event

    def ended(self, name: str, limit_s: float = LIMIT_S) -> int:
        """Its exit code, once it ends by itself."""
        try:
            return self.processes[name].wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} does not end: {self.log(name)[-2000:]}") from None

    def stopped(self, name: str) -> int:
        """Its exit code after SIGTERM."""
        self.processes[name].terminate()
        return self.ended(name)


@contextmanager
def plant(folder: Path) -> Iterator[Plant]:
    with Plant(folder) as made:
        yield made
