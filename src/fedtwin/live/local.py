"""A fleet on this machine: an edge server and devices as processes of their own, started as a user starts them."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtwin.config import Config, to_toml
from fedtwin.errors import FedtwinError
from fedtwin.live.broker.process import Broker, BrokerOptions
from fedtwin.supervision import Process, ProcessGroup, wait_until

PROGRAM = (sys.executable, "-m", "fedtwin")


class LocalFleet(ProcessGroup):
    """``with LocalFleet(folder) as fleet``: all it starts is gone at the end of the block, also the edge server's broker.

    ``run`` is the folder of the run, ``folder / "run"`` by default; what a process says is in ``NAME.out`` and ``NAME.log`` of
    ``folder``. Arguments are those of the commands ``fedtwin edge`` and ``fedtwin device``.

        with LocalFleet(Path("out/fleet")) as fleet:
            fleet.edge(config=config)
            for number in range(config.fleet.devices):
                fleet.device(f"device-{number}", fleet.url(), "--emulate", number)
            fleet.processes["edge"].wait()
    """

    def __init__(
        self, folder: Path, *, run: Path | None = None, program: Sequence[str] = PROGRAM, stop_s: float = 15.0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, stop_s=stop_s)
        self.run, self._program = run or folder / "run", program

    def command(self, name: str, *arguments: object) -> Process:
        """Any command of ``fedtwin``, as a process of that name."""
        return self.start(name, [*self._program, *arguments])

    def edge(self, *arguments: object, config: Config | None = None, settings: Mapping[str, object] | None = None) -> Process:
        """The edge server of the run, which begins with these settings, or goes on if it had begun."""
        named = [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={value}")]
        if config is not None:
            file = self.folder / "edge.toml"
            file.write_text(to_toml(config), encoding="utf-8")
            named.insert(0, str(file))
        return self.command("edge", "edge", *named, "--state", self.run.resolve(), *arguments)

    def device(self, name: str, url: str, *arguments: object) -> Process:
        return self.command(name, "device", name, "--server", url, *arguments)

    def url(self, limit_s: float = 30.0) -> str:
        """The address of the edge server's own broker, once it listens."""

        def found() -> str | None:
            if (edge := self.processes.get("edge")) is not None and edge.poll() is not None:
                raise FedtwinError(f"The edge server ended: {self.last_words('edge')}")
            return self.broker_record().get("url")

        url = wait_until(found, limit_s)
        if url is None:
            raise FedtwinError(f"The edge server has no broker after {limit_s:g} s: {self.last_words('edge')}")
        return str(url)

    def broker_record(self) -> dict[str, Any]:
        """``url`` and ``pid`` of the edge server's own broker; empty before there is one."""
        with suppress(OSError, ValueError):
            record: dict[str, Any] = json.loads((self.run / "broker" / "broker.json").read_text(encoding="utf-8"))
            return record
        return {}

    def kill(self, name: str) -> None:
        """kill -9, no warning: a process, or the edge server's ``broker``."""
        if name == "broker":
            with suppress(OSError, KeyError):
                os.kill(int(self.broker_record()["pid"]), 9)
            return
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self) -> None:
        super().stop()
        Broker.stop_left_over(self.run / "broker", BrokerOptions(self.run / "broker" / "store"))
