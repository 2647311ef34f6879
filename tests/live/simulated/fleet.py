"""The whole fleet in one process: a broker in memory, the real edge server, real agents, all on virtual time.

Whoever dies or ends is started again, as systemd would; the broker by the edge server, whose own it is.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.layout import Weights
from fedtwin.live import Update
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.run import opening
from fedtwin.live.run.events import Event
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.edge import EdgeOptions, EdgeServer
from fedtwin.live.wire.ports import Ports
from fedtwin.live.wire.tensors import Codec, read_model
from tests.live.adding_device import SAMPLES
from tests.live.chaos import ENTRIES, SETTINGS
from tests.live.simulated.broker import MemoryBroker
from tests.live.simulated.disk import FaultyDisk, KilledError
from tests.live.simulated.loop import PROCESS, Process, VirtualLoop
from tests.live.simulated.transport import MemoryTransport, connector
from tests.live.simulated.world import LoopClock, SeededChance

SERVERS = ["memory"]
CPU_HZ = 1e9
AGAIN_S = 1.0
RENEW_S = 1.0  # virtual time has many of them
LOG = logging.getLogger("fedtwin.live")
SIMULATED: dict[str, Any] = {**SETTINGS, "objective.max_time_s": 2.0, "objective.max_energy_j": 1000.0, "live.fsync": False}


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


class MarkingTrainer:
    """Adds 1 to entry ``round`` of the model, as ``adding_device`` does."""

    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return SAMPLES

    def train(self, model: bytes, round_: int) -> Update:
        layout, weights = read_model(model, "task")
        floats = np.array(weights.floats)
        floats[round_ % len(floats)] += 1.0
        return Update(Codec(layout).encode(weights._replace(floats=floats)), float(round_))

    def stop(self) -> None:
        pass


class Supervised:
    """Somebody who is started again whenever it dies or ends."""

    def __init__(self, fleet: "Fleet", name: str, live: Callable[["Life"], Coroutine[Any, Any, bool]]) -> None:
        self._fleet, self.name, self._live = fleet, name, live
        self.life = Life(fleet, name)
        self.down_s = 0.0
        self.deaths = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._for_ever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.life.end(self._fleet.loop)

    async def _for_ever(self) -> None:
        loop = self._fleet.loop
        while True:
            life = self.life = Life(self._fleet, self.name)
            work = loop.create_task(self._live(life), context=life.process.context)
            dies = loop.create_task(life.killed.wait())
            await asyncio.wait([work, dies], return_when=asyncio.FIRST_COMPLETED)
            dies.cancel()
            if life.killed.is_set():
                self.deaths += 1
                await life.end(loop)
                with suppress(Exception, asyncio.CancelledError, KilledError):
                    work.result()
                await asyncio.sleep(self.down_s)
                continue
            try:
                ended = work.result()
            except FedtwinError as error:
                life.process.context.run(LOG.error, "error: %s", error)
                ended = False
            await life.end(loop)
            if ended:
                return
            await asyncio.sleep(AGAIN_S)


class Life:
    """From a start to a death: a process, its connections, its disk, its ports."""

    def __init__(self, fleet: "Fleet", name: str) -> None:
        self.fleet, self.process = fleet, Process(name)
        self.killed = asyncio.Event()
        self.process.dies = self.kill
        self.disk = FaultyDisk(self.process, fleet.chance)
        self.disk.full = fleet.edge_disk_full and name == "edge"
        self.run: LiveRun | None = None
        self._transports: list[MemoryTransport] = []
        connect = connector(fleet.broker, fleet.drawn, fleet.stored)

        async def connected(*args: Any, **kwargs: Any) -> MemoryTransport:
            transport = await connect(*args, **kwargs)
            self._transports.append(transport)
            return transport

        self.ports = Ports(connect=connected, clock=fleet.clock, chance=fleet.drawn, in_a_thread=self._in_a_thread)

    async def _in_a_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self.fleet.chance.uniform(*self.fleet.thread_s))
        return function(*args, **kwargs)

    def kill(self) -> None:
        """As kill -9: from now on nothing it does is seen outside."""
        self.process.dead = True
        for transport in self._transports:
            transport.vanish()
        self.killed.set()

    async def end(self, loop: VirtualLoop) -> None:
        self.process.dead = True
        for transport in self._transports:
            transport.vanish()
        await loop.kill(self.process)
        if self.run is not None:
            with suppress(KilledError, OSError):
                self.run.close()


class Fleet:
    """``play`` it in a folder of its own."""

    def __init__(self, folder: Path, seed: int, *, devices: int = 5, rounds: int = 30, **settings: Any) -> None:
        self.folder, self.chance = folder / "run", random.Random(seed)
        self.loop = VirtualLoop()
        self.clock, self.drawn = LoopClock(), SeededChance(self.chance)
        self.broker = MemoryBroker(self.chance, LoopClock())
        self.broker_is_ours = True
        self.happened: list[tuple[float, Event]] = []
        self.thread_s = (0.05, 0.6)
        self.edge_disk_full = False
        self.stored: dict[str, float] = {}
        overrides = {
            "fleet.devices": devices,
            "fleet.channels": devices - (devices > 3),
            "run.rounds": rounds,
            **SIMULATED,
            **settings,
        }
        self.config = load_config(overrides=overrides)
        self.finished = False
        self.edge = Supervised(self, "edge", self._edge)
        self.devices = [Supervised(self, f"device-{number}", self._device) for number in range(devices)]
        self.others: list[Supervised] = []

    async def _edge(self, life: Life) -> bool:
        begin = not self.folder.exists()
        if begin:
            initial = _initial()
            life.run = opening.begin(self.folder, self.config, "main", initial, clock=self.clock, disk=life.disk)
        else:
            life.run = opening.resume(self.folder, clock=self.clock, disk=life.disk)
        life.run.listeners.append(lambda event, _: self.happened.append((self.loop.time(), event)))
        if life.run.core.finished:
            self.finished = True
            return True
        if self.broker_is_ours and not self.broker.alive():
            self.broker.restart()
        broker = self.broker if self.broker_is_ours else None
        options = EdgeOptions(SERVERS, broker, ports=life.ports, new=begin, renew_s=RENEW_S)
        self.finished = await EdgeServer(life.run, options).serve()
        return self.finished

    async def _device(self, life: Life) -> bool:
        options = AgentOptions(life.process.name, SERVERS, MarkingTrainer(), cpu_hz=CPU_HZ, ports=life.ports)
        await Agent(options).run()
        return False

    def start(self) -> None:
        for somebody in (self.edge, *self.devices, *self.others):
            somebody.start()

    async def stop(self) -> None:
        """Everybody is gone."""
        for somebody in (self.edge, *self.devices, *self.others):
            await somebody.stop()

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        end = self.loop.time() + limit_s
        while not condition() and self.loop.time() < end:
            await asyncio.sleep(0.1)
        return condition()


def _initial() -> bytes:
    layout, _ = read_model(INITIAL, "initial")
    return Codec(layout).encode(Weights(np.zeros(ENTRIES, np.float32), np.zeros(0, np.int64)))


def _made() -> bytes:
    from safetensors.numpy import save

    return save({"marks": np.zeros(ENTRIES, np.float32)})


INITIAL = _made()
