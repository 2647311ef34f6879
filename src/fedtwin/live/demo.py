"""The demonstration: a whole fleet on this machine, broker, edge server and devices as processes of their own."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError
from fedtwin.live.broker.process import local_broker
from fedtwin.live.local import LocalFleet
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME, LedgerReader
from fedtwin.live.run.opening import require_new
from fedtwin.live.server.hosting import NOTHING_MIXED_IN
from fedtwin.live.wire.nats_connection import require_nats
from fedtwin.records import read_summary

LOOK_EVERY_S = 0.1
SETTINGS: dict[str, Any] = {
    "learning": {"dataset": "digits", "model": "mlp", "learning_rate": 0.1, "evaluate_every_s": 5.0},
    "live": {"time_scale": 0.2, "heartbeat_s": 2.0, "clock_tolerance_s": 0.1},
}


@dataclass(frozen=True)
class Shown:
    """What came of a demonstration: the run's summary, and the edge server's last words where its exit code is not 0."""

    summary: dict[str, Any]
    exit_code: int
    trouble: str | None


def demo_config(devices: int, overrides: Mapping[str, Any]) -> Config:
    """Digits on unlike devices, five times as fast as their clocks say."""
    base = {**SETTINGS, "fleet": {"channels": min(4, devices), "devices": devices}}
    config = build_config(base, dict(overrides))
    wanted = config.live.start_with if config.live is not None else None
    if wanted is not None and wanted > config.fleet.devices:
        raise FedtwinError(f"live.start_with = {wanted} is more than the {config.fleet.devices} devices: no run would start.")
    return config


def check_demo(out: Path) -> None:
    """Whether there can be a demonstration in this folder."""
    require_nats()
    require_new(out)


def run_demo(out: Path, config: Config, happened: Callable[[Event], None], warned: Callable[[str], None]) -> Shown:
    """The run is in the new folder ``out``, with what every process said in ``logs``; ``happened`` hears of every event,
    ``warned`` what the edge server warns of.
    """
    check_demo(out)
    with tempfile.TemporaryDirectory(prefix="fedtwin-demo-") as text:
        work = Path(text)
        try:
            with local_broker(work / "broker") as broker, LocalFleet(work, run=out) as fleet:
                fleet.edge("--server", broker.url, config=config)
                for number in range(config.fleet.devices):
                    fleet.device(f"device-{number}", broker.url, "--emulate", number)
                exit_code = _follow(fleet, happened, warned)
                trouble = fleet.last_words("edge") if exit_code != 0 else None
        finally:
            if out.exists():
                (out / "logs").mkdir(exist_ok=True)
                for log in work.glob("*.log"):
                    shutil.copy(log, out / "logs" / log.name)
    return Shown(read_summary(out), exit_code, trouble)


def _follow(fleet: LocalFleet, happened: Callable[[Event], None], warned: Callable[[str], None]) -> int:
    """Reads ledger and log while they grow, until the edge server ends; gives its exit code. No device ends before it."""
    path = fleet.run / LEDGER_NAME
    reader, log = LedgerReader(path), _Warnings(fleet.folder / "edge.log")
    while True:
        exit_code = fleet.processes["edge"].poll()
        if path.exists():
            for event in reader.read():
                happened(event)
        for line in log.read():
            warned(line)
        if exit_code is not None:
            break
        for name, process in fleet.processes.items():
            if name != "edge" and (code := process.poll()) is not None:
                raise FedtwinError(f"{name} ended before the run did, with exit code {code}: {fleet.last_words(name)}")
        time.sleep(LOOK_EVERY_S)
    if exit_code not in (0, NOTHING_MIXED_IN):
        raise FedtwinError(f"The edge server ended: {fleet.last_words('edge')}")
    return exit_code


class _Warnings:
    """What a process warns of, line by line as it says it."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def read(self) -> list[str]:
        """Those that are new, without the time."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read += len(whole + end)
        return [words for line in whole.decode("utf-8", "replace").splitlines() if (words := _warning_in(line)) is not None]


def _warning_in(line: str) -> str | None:
    """``logs`` begins with the time and the level, a command with ``warning:``."""
    if line.startswith("warning: "):
        return line
    _, _, rest = line.partition(" ")
    level, _, words = rest.partition(" ")
    return f"{level}: {words.lstrip()}" if level in ("warning", "error") else None
