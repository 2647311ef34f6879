"""A fleet and a flooder: ``python -m tests.live.floods FOLDER KIND [tls]`` tells what the others do before, during, after."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fedtwin.live.broker.provisioning import provision
from tests.live.brokers import RUN, own_port
from tests.live.plant import Plant, events_of

HONEST, FLOODER = ("d0", "d1", "d2", "d3"), "hostile"
CUT_WITHIN_S = 5.0
SETTINGS = {
    "fleet__devices": len(HONEST), "fleet__channels": len(HONEST), "live__heartbeat_s": 0.5, "live__deadline_margin_s": 10.0,
}  # fmt: skip


@dataclass(frozen=True)
class Flood:
    """Tasks a second before, in the first seconds of the flood, and after these; the broker's memory; the flooder's words."""

    before: float
    during: float
    after: float
    broker_mb: list[float]
    flooder: dict[str, float]


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


def measured(folder: Path, kind: str, *, tls: bool, window_s: float = 5.0, **settings: object) -> Flood:
    with fleet(folder, tls=tls, **settings) as (plant, url):
        memory: list[float] = []
        before = _rate(plant, window_s, memory)
        with flooding(folder, url, kind, tls=tls):
            during = _rate(plant, CUT_WITHIN_S, memory)
            after = _rate(plant, window_s, memory)
            words = [json.loads(line) for line in (folder / "flooder.log").read_text().splitlines()]
        return Flood(before, during, after, memory, words[-1] if words else {})


def _rate(plant: Plant, seconds: float, memory: list[float]) -> float:
    """Uploads mixed in a second; meanwhile the broker's largest size in memory is looked at."""
    count, begun, most = len(events_of(plant.run, "applied")), time.monotonic(), 0.0
    pid = json.loads((plant.run / "broker" / "broker.json").read_text())["pid"]
    while time.monotonic() < begun + seconds:
        size = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()
        most = max(most, float(size[0]) / 1024 if size else 0.0)
        time.sleep(0.05)
    memory.append(most)
    return (len(events_of(plant.run, "applied")) - count) / (time.monotonic() - begun)


if __name__ == "__main__":
    print(measured(Path(sys.argv[1]), sys.argv[2], tls="tls" in sys.argv[3:], window_s=8.0))
