"""A fleet and a flooder: ``python -m tests.live.floods FOLDER KIND [tls]`` tells what the others do before, during, after.

After it was cut, while it comes again and again, times with it take turns with times of a control: the flooder stands still
and a process that touches nobody burns as much CPU as it did. So neither its own CPU nor other load is counted as loss.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fedtwin.live.broker.provisioning import provision
from tests.live.brokers import RUN, frozen, own_port
from tests.live.plant import Plant, events_of

HONEST, FLOODER = ("d0", "d1", "d2", "d3"), "hostile"
CUT_WITHIN_S = 5.0
TURNS, TURN_S = 4, 2.5
APPLIED = b'"kind":"applied"'
CUT = "floods the broker and is"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTINGS = {
    "fleet__devices": len(HONEST), "fleet__channels": len(HONEST), "live__heartbeat_s": 0.5, "live__deadline_margin_s": 10.0,
}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """Some seconds of the fleet: tasks mixed in, CPU seconds of edge server, broker and attacker, the broker's memory."""

    seconds: float = 0.0
    tasks: int = 0
    edge_cpu_s: float = 0.0
    broker_cpu_s: float = 0.0
    attacker_cpu_s: float = 0.0
    broker_mb: float = 0.0

    def __add__(self, other: "Span") -> "Span":
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMMED}
        return Span(**sums, broker_mb=max(self.broker_mb, other.broker_mb))

    @property
    def tasks_per_s(self) -> float:
        return self.tasks / self.seconds

    def __str__(self) -> str:
        shares = [f"{name} {getattr(self, f'{name}_cpu_s') / self.seconds:.2f}" for name in ("edge", "broker", "attacker")]
        return f"{self.tasks_per_s:.1f} tasks/s, CPU: {', '.join(shares)}; broker {self.broker_mb:.0f} MB"


SUMMED = ("seconds", "tasks", "edge_cpu_s", "broker_cpu_s", "attacker_cpu_s")


@dataclass(frozen=True)
class Flood:
    """Before, in the first seconds after the cut, after these while it comes again, and beside the same CPU; its own words."""

    before: Span
    during: Span
    after: Span
    control: Span
    flooder: dict[str, float]

    @property
    def left(self) -> float:
        """Of the throughput beside a process that burns as much CPU as the flooder."""
        return self.after.tasks_per_s / self.control.tasks_per_s

    def __str__(self) -> str:
        spans = [f"{name}: {getattr(self, name)}" for name in ("before", "during", "after", "control")]
        return "\n".join([*spans, f"left: {self.left:.2f}", f"flooder: {self.flooder}"])


@contextmanager
def fleet(folder: Path, *, tls: bool, **settings: object) -> Iterator[tuple[Plant, str]]:
    """Four honest devices at work, and the broker's address."""
    plant = Plant(folder)
    try:
        place: list[object] = []
        if tls:
            provision(folder / "fleet", run=RUN, server_names=[], devices=[*HONEST, FLOODER])
            place = ["--credentials", folder / "fleet", "--listen", f"127.0.0.1:{own_port()}"]
        plant.new_edge("--rounds", 10**7, *place, **{**SETTINGS, **settings})
        url = plant.url()
        for name in HONEST:
            own = ["--credentials", folder / "fleet" / "devices" / name] if tls else []
            plant.device(name, url, "--no-training", "--samples", 50, *own)
        plant.wait(lambda: len(events_of(plant.run, "applied")) > 20, "uploads")
        yield plant, url
    finally:
        plant.stop()


@contextmanager
def flooding(folder: Path, url: str, kind: str, *, tls: bool) -> Iterator[subprocess.Popen[bytes]]:
    place = urlsplit(url)
    own = [str(folder / "fleet" / "devices" / FLOODER)] if tls else []
    command = [sys.executable, "-m", "tests.live.flooder", str(place.hostname), str(place.port), FLOODER, kind, *own]
    with (folder / "flooder.log").open("wb") as log, subprocess.Popen(command, stdout=log) as process:
        try:
            yield process
        finally:
            process.kill()


def measured(folder: Path, kind: str, *, tls: bool, turns: int = TURNS, **settings: object) -> Flood:
    with fleet(folder, tls=tls, **settings) as (plant, url):
        meter = Meter(plant)
        before = meter.span(CUT_WITHIN_S, None)
        after, control = Span(), Span()
        with flooding(folder, url, kind, tls=tls) as flooder:
            plant.wait(lambda: CUT in plant.log("edge"), "the cut")
            during = meter.span(CUT_WITHIN_S, flooder.pid)
            plant.wait(lambda: _words(folder).get("cuts"), "the flooder to notice")
            for _ in range(turns):
                after += meter.span(TURN_S, flooder.pid)
                with frozen(flooder.pid), burning(after.attacker_cpu_s / after.seconds) as burner:
                    control += meter.span(TURN_S, burner.pid)
            return Flood(before, during, after, control, _words(folder))


def _words(folder: Path) -> dict[str, float]:
    """The flooder's last ones."""
    lines = (folder / "flooder.log").read_text().split("\n")[:-1]
    return json.loads(lines[-1]) if lines else {}


@contextmanager
def burning(share: float) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-m", "tests.live.burner", str(share)]) as process:
        try:
            yield process
        finally:
            process.kill()


class Meter:
    """Reads what the processes of a plant have done so far."""

    def __init__(self, plant: Plant) -> None:
        self._run = plant.run
        self._edge = plant.processes["edge"].pid
        self._broker = json.loads((plant.run / "broker" / "broker.json").read_text())["pid"]
        self._read: dict[Path, int] = {}
        self._applied = 0

    def span(self, seconds: float, attacker: int | None) -> Span:
        pids = [self._edge, self._broker, *([attacker] if attacker is not None else [])]
        count, begun, before, most = self._count(), time.monotonic(), [_cpu_s(pid) for pid in pids], 0.0
        while time.monotonic() < begun + seconds:
            time.sleep(0.05)
            size = Path(f"/proc/{self._broker}/status").read_text().partition("VmRSS:")[2].split()
            most = max(most, float(size[0]) / 1024 if size else 0.0)
        used = [_cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
        tasks = self._count() - count
        return Span(time.monotonic() - begun, tasks, used[0], used[1], sum(used[2:]), most)

    def _count(self) -> int:
        """Uploads mixed in so far: whole lines of all segments of the ledger, each read once."""
        for path in sorted(self._run.glob("ledger*.jsonl")):
            with path.open("rb") as ledger:
                ledger.seek(self._read.get(path, 0))
                whole = ledger.read().rpartition(b"\n")[0]
            self._applied += whole.count(APPLIED)
            self._read[path] = self._read.get(path, 0) + len(whole)
        return self._applied


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


if __name__ == "__main__":
    print(measured(Path(sys.argv[1]), sys.argv[2], tls="tls" in sys.argv[3:]))
