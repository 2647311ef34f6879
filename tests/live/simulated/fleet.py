"""The whole fleet in one process: a broker in memory, the real edge server, real agents, all on virtual time.

Whoever dies or ends is started again, as systemd would; the broker by the edge server, whose own it is.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError, TakenOverError
from fedtwin.live import Update
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME, first_lines
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.wire.tensors import Codec, read_model
from tests.live.adding_device import SAMPLES
from tests.live.chaos import ENTRIES, SETTINGS
from tests.live.simulated.broker import MemoryBroker
from tests.live.simulated.evaluating import SimulatedWorker, evaluating
from tests.live.simulated.life import Life, Supervised
from tests.live.simulated.loop import VirtualLoop
from tests.live.simulated.stations import SERVERS, serving
from tests.live.simulated.world import LoopClock, SeededChance

CPU_HZ = 1e9
SIMULATED: dict[str, Any] = {**SETTINGS, "objective.max_time_s": 2.0, "objective.max_energy_j": 1000.0, "live.fsync": False}


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


class Fleet:
    """``start`` it in a folder of its own. With ``standby`` a second edge server waits: for the first one's "folder", or for
    its ledger, where that is a "stream", on a machine of its own.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        devices: int = 5,
        rounds: int = 30,
        standby: str = "",
        evaluator: bool = False,
        **settings: Any,
    ) -> None:
        self.chance, self.standby = random.Random(seed), standby
        self.folders = {"edge": folder / "run", "standby": folder / ("other" if standby == "stream" else "run")}
        self.loop = VirtualLoop()
        self.clock, self.drawn = LoopClock(self.loop), SeededChance(self.chance)
        self.broker = MemoryBroker(self.chance, LoopClock(self.loop))
        self.broker_is_ours = True
        self.happened: list[tuple[float, Event]] = []
        self.thread_s = (0.05, 0.6)
        self.full_disks: set[str] = set()
        self.stored: dict[str, float] = {}
        self.features, self._last = Counter[str](), "edge"
        overrides = {
            "fleet.devices": devices,
            "fleet.channels": devices - (devices > 3),
            "run.rounds": rounds,
            **SIMULATED,
            **({"live.ledger": "stream"} if standby == "stream" else {}),
            **(
                {"learning.dataset": "digits", "learning.evaluate_every_s": 1.0, "learning.average": "ema"} if evaluator else {}
            ),
            **settings,
        }
        self.config = load_config(overrides=overrides)
        self.initial = initial_model()
        self.finished_run: LiveRun | None = None
        self.edge = Supervised(self, "edge", serving)
        self.devices = [Supervised(self, f"device-{number}", self._device) for number in range(devices)]
        self.others: list[Supervised] = [Supervised(self, "standby", serving)] if standby else []
        self.worker: SimulatedWorker | None = None
        if evaluator:
            self.others.append(Supervised(self, "evaluator", evaluating))
            self.worker = SimulatedWorker(self.others[-1])

    @property
    def finished(self) -> bool:
        return self.finished_run is not None

    @property
    def everybody(self) -> list[Supervised]:
        return [self.edge, *self.devices, *self.others]

    async def _device(self, life: Life) -> bool:
        options = AgentOptions(life.process.name, SERVERS, MarkingTrainer(), cpu_hz=CPU_HZ, ports=life.ports)
        await Agent(options).run()
        return False

    def came(self, name: str, run: LiveRun, *, new: bool) -> None:
        """An edge server has opened the run."""
        run.listeners.append(lambda event, _: self.happened.append((self.loop.time(), event)))
        if not new and not run.core.finished:
            self.features["resumed"] += 1
            self.features["resumed after a segment"] += len(first_lines(run.folder / LEDGER_NAME)) > 1
            self.features["taken over"] += name != self._last
        self._last = name

    def ended_by(self, name: str, error: FedtwinError) -> None:
        """Somebody said why it ended."""
        if isinstance(error, TakenOverError):
            self.features[f"{name} found that it was taken over"] += 1

    def start(self) -> None:
        for somebody in self.everybody:
            somebody.start()

    async def stop(self) -> None:
        """Everybody is gone."""
        for somebody in self.everybody:
            await somebody.stop()

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        end = self.loop.time() + limit_s
        while not condition() and self.loop.time() < end:
            await asyncio.sleep(0.1)
        return condition()


def initial_model() -> bytes:
    layout, weights = read_model(save({"marks": np.zeros(ENTRIES, np.float32)}), "initial")
    return Codec(layout).encode(weights)
