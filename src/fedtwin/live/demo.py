"""A whole fleet on this machine: broker, edge server and devices as processes of their own, as on a plant floor."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedtwin.config import Config, to_toml
from fedtwin.errors import FedtwinError
from fedtwin.live.broker.process import Broker, BrokerOptions
from fedtwin.live.run.events import EVENT, Event
from fedtwin.live.run.ledger import LEDGER_NAME
from fedtwin.processes import ended_with_parent

LOOK_EVERY_S = 0.1
STOP_S = 15.0
NOTHING_MIXED_IN = 3


@dataclass
class Fleet:
    """The processes of a demo."""

    broker: Broker
    edge: subprocess.Popen[bytes]
    devices: list[subprocess.Popen[bytes]] = field(default_factory=list)


@contextmanager
def fleet_of_processes(out: Path, config: Config, work: Path) -> Iterator[Fleet]:
    """Broker, edge server, devices; all end with the block, whatever happens, and with this process."""
    broker = Broker.start(work / "broker", BrokerOptions(work / "broker" / "store"), die_with_parent=True)
    settings = work / "demo.toml"
    settings.write_text(to_toml(config), encoding="utf-8")
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (work / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedtwin", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ended_with_parent(),
            )
        started.append(process)
        return process

    try:
        fleet = Fleet(broker, start("edge", "edge", str(settings), "--out", str(out.resolve()), "--server", broker.url))
        for number in range(config.fleet.devices):
            name = f"device-{number}"
            fleet.devices.append(start(name, "device", name, "--server", broker.url, "--emulate", str(number)))
        yield fleet
    finally:
        for process in started:
            process.terminate()
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=STOP_S)
            process.kill()
            process.wait()
        broker.stop()


def follow(out: Path, fleet: Fleet, work: Path, happened: Callable[[Event], None]) -> None:
    """Reads the ledger while it grows, until the edge server ends; how it ended is the caller's to judge by the summary."""
    path, place = out / LEDGER_NAME, 0
    while True:
        ended = fleet.edge.poll() is not None
        if path.exists():
            with path.open("rb") as ledger:
                ledger.seek(place)
                for line in ledger:
                    if not line.endswith(b"\n"):
                        break
                    place += len(line)
                    happened(EVENT.validate_json(line))
        if ended:
            break
        for number, device in enumerate(fleet.devices):
            if device.poll() not in (None, 0):
                raise FedtwinError(f"device-{number} ended: {last_words(work / f'device-{number}.log')}")
        time.sleep(LOOK_EVERY_S)
    if fleet.edge.returncode not in (0, NOTHING_MIXED_IN):
        raise FedtwinError(f"The edge server ended: {last_words(work / 'edge.log')}")


def last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "without a word."
