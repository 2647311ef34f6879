"""``fedtwin live demo`` as a process, and the lines of its ledger by the wall clock: what the benchmarks of the page share."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedtwin.live.demo import SETTINGS

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
TIME_SCALE: float = SETTINGS["live"]["time_scale"]
LIMIT_S, PATIENCE_S = 900.0, 30.0


class Line(NamedTuple):
    """An event of the ledger, and when it was written, by the clock on the wall."""

    wall_s: float
    event: dict[str, Any]


def lines_of(ledger: Path, time_scale: float = TIME_SCALE) -> list[Line]:
    """An event is stamped just before its line is written: what comes after is measured a little too long, never too short."""
    found = [json.loads(line) for line in ledger.read_bytes().splitlines()]
    began_s = next(event["wall_s"] for event in found if event["kind"] == "began")
    return [Line(began_s + time_scale * event["at_s"], event) for event in found]


class Demo:
    """A demonstration that runs in ``folder / "run"``."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.run, self._said, self._process = folder / "run", folder / "said", process

    def address(self) -> str:
        """Of its page, once that says so."""
        while (found := ADDRESS.search(self._said.read_text(encoding="utf-8"))) is None:
            self._look()
        return found.group()

    def wait_for_ledger(self) -> None:
        while not (self.run / "ledger.jsonl").exists():
            self._look()

    def wait_until_finished(self) -> None:
        while not (self.run / "summary.json").exists():
            self._look()

    def _look(self) -> None:
        assert self._process.poll() in (None, 0), self._said.read_text(encoding="utf-8")[-2000:]
        time.sleep(0.1)


@contextmanager
def demo(folder: Path, devices: int, rounds: int, *, page: bool) -> Iterator[Demo]:
    options = ["--devices", str(devices), "--rounds", str(rounds), "--out", "run", *(["--page", "--page-port", "0"] * page)]
    with (folder / "said").open("w") as said:
        command = [sys.executable, "-m", "fedtwin", "live", "demo", *options]
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, text=True)
        try:
            yield Demo(folder, process)
        finally:
            if page or (process.poll() is None and not (folder / "run" / "summary.json").exists()):
                process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:  # started where Ctrl-C is ignored, as a shell does it in the background
                process.terminate()
                process.wait()
