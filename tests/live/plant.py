"""Edge servers and devices as processes of their own, started as a user starts them; all are gone at the end of a test."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from fedtwin.processes import ended_with_parent, runs_with
from tests.conftest import FEDTWIN

LIMIT_S = 30.0
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
    """All whole lines."""
    with suppress(FileNotFoundError):
        lines = (run / "ledger.jsonl").read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]
    return []


def events_of(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in ledger_of(run) if event["kind"] == kind]


class Plant:
    """The processes of one run in ``folder / "run"``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: object) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("ab") as out, (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*FEDTWIN, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                preexec_fn=ended_with_parent(),
            )
        return self.processes[name]

    def edge(self, *arguments: object, **settings: object) -> subprocess.Popen[bytes]:
        """A setting ``live__late`` is ``live.late``."""
        named = [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        return self.start("edge", "edge", "--no-evaluator", *arguments, *named)

    def new_edge(self, *arguments: object, **settings: object) -> subprocess.Popen[bytes]:
        model = self.folder / "initial.safetensors"
        if not model.exists():
            write_model(model)
        return self.edge("--out", self.run, "--initial", model, *arguments, **settings)

    def device(self, name: str, url: str, *arguments: object) -> subprocess.Popen[bytes]:
        return self.start(name, "device", name, "--server", url, *arguments)

    def url(self) -> str:
        """Of the edge server's own broker, once it listens."""

        def recorded() -> str | None:
            with suppress(OSError, ValueError, KeyError):
                return str(json.loads((self.run / "broker" / "broker.json").read_text(encoding="utf-8"))["url"])
            return None

        return str(self.wait(recorded, "the broker's address"))

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

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        with suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((self.run / "broker" / "broker.json").read_text(encoding="utf-8"))["pid"])
            if runs_with(pid, str(self.run.resolve())):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def plant(folder: Path) -> Iterator[Plant]:
    made = Plant(folder)
    try:
        yield made
    finally:
        made.close()
