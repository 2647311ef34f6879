"""What may go wrong, drawn from one number: when, to whom, for how long."""

import asyncio
import random
from dataclasses import dataclass, replace

from fedtwin.live.wire.protocol import Subjects
from tests.live.simulated.broker import Weather
from tests.live.simulated.fleet import Fleet
from tests.live.simulated.life import Supervised

SUBJECTS = Subjects("main")
WITHIN_S, MOST_FAULTS = 3.0, 6
FLEETS = (1, 1, 2, 3, 5, 5, 5, 5)
FIRST_UPLOADS_S = (0.5, 1.2)
MOST_STEPS, MOST_WRITES = 150, 12
PERSON_S = 8.0

WEATHER = ("delay", "loss", "duplication", "reordering")
LIVES = ("partition", "silent partition", "broken connection", "pause", "crash")
BROKER = ("pause", "crash", "lost store", "deleted consumer", "deleted stream", "frozen stream", "mute consumer",
          "other subjects", "other filter", "full disk")  # fmt: skip
EDGE = ("crash at a write", "full disk", "clock step")
STANDBY = (*LIVES, "crash at a write", "full disk")
FEW_LINES, MANY_LINES = 25, 20_000


@dataclass(frozen=True)
class Fault:
    at_s: float
    what: str
    who: str
    lasts_s: float
    amount: float

    def __str__(self) -> str:
        return f"{self.at_s:9.3f}  {self.what} of {self.who}, {self.lasts_s:.2f} s, {self.amount:.3f}"


@dataclass(frozen=True)
class Schedule:
    """All faults of a seed, and what kind of fleet meets them."""

    faults: tuple[Fault, ...]
    devices: int = 5
    broker_is_ours: bool = True
    hostile: bool = False
    segment_lines: int = MANY_LINES
    standby: str = ""
    sync: bool = False
    timeout: bool = False
    evaluator: bool = False
    objects: bool = False

    @property
    def has(self) -> list[str]:
        """In words, for a count over many."""
        standby = {"": "", "folder": "a standby of the folder", "stream": "a standby with the ledger as a stream"}
        wanted = {
            "small segments": self.segment_lines < MANY_LINES,
            "synchronous rounds": self.sync,
            "synchronous rounds with a timeout": self.timeout,
            "evaluations": self.evaluator,
            "models as objects": self.objects,
            "a hostile device": self.hostile,
            "a broker of somebody else's": not self.broker_is_ours,
            standby[self.standby]: bool(self.standby),
        }
        return [what for what, there in wanted.items() if there]

    @property
    def told(self) -> str:
        faults = "; ".join(f"{fault.what} of {fault.who}" for fault in self.faults)
        return f"{faults} (with {', '.join(self.has)})" if self.has else faults

    @property
    def kinds(self) -> set[str]:
        """Its faults, without the devices' numbers."""
        return {f"{fault.what} of {fault.who.partition('-')[0]}" for fault in self.faults}


def drawn(seed: int) -> Schedule:
    chance = random.Random(f"faults of {seed}")
    devices, count = chance.choice(FLEETS), chance.randint(1, MOST_FAULTS)
    standby = chance.choices(("", "folder", "stream"), (0.65, 0.15, 0.2))[0]
    evaluator, sync = chance.random() < 0.2, chance.random() < 0.2
    who = ["weather", "edge", "edge", "broker", "broker", "broker", *(f"device-{number}" for number in range(devices))]
    who += ["edge", "standby"] * bool(standby) + ["evaluator"] * evaluator
    return Schedule(
        tuple(sorted((_one(chance, who) for _ in range(count)), key=lambda fault: fault.at_s)),
        devices,
        broker_is_ours=standby != "stream" and chance.random() < 0.75,
        hostile=chance.random() < 0.25,
        segment_lines=FEW_LINES if chance.random() < 0.8 else MANY_LINES,
        standby=standby,
        sync=sync,
        timeout=sync and chance.random() < 0.5,
        evaluator=evaluator,
        objects=chance.random() < 0.2,
    )


def _one(chance: random.Random, among: list[str]) -> Fault:
    who = chance.choice(among)
    kinds = {"weather": WEATHER, "edge": (*LIVES, *EDGE), "broker": BROKER, "standby": STANDBY}.get(who, LIVES)
    lasts_s = chance.choice([0.1, 0.5, 1.0, 3.0, 8.0]) * chance.uniform(0.5, 1.5)
    at_s = chance.uniform(0.0, WITHIN_S) if chance.random() < 0.7 else chance.uniform(*FIRST_UPLOADS_S)
    return Fault(at_s, chance.choice(kinds), who, lasts_s, chance.random())


async def strike(fleet: Fleet, fault: Fault) -> None:
    """From its beginning to its end."""
    loop, broker, amount = fleet.loop, fleet.broker, fault.amount
    lives = {one.name: one for one in fleet.everybody}
    if fault.who == "weather":
        await _bad_weather(fleet, fault)
    elif fault.who == "broker":
        await _strike_the_broker(fleet, fault)
    elif fault.what in ("partition", "silent partition"):
        broker.partition(fault.who, told=fault.what == "partition")
        await asyncio.sleep(fault.lasts_s)
        broker.heal(fault.who)
    elif fault.what == "broken connection":
        broker.break_connections(fault.who)
    elif fault.what == "pause":
        process = lives[fault.who].life.process
        loop.pause(process)
        await asyncio.sleep(fault.lasts_s)
        loop.go_on(process)
    elif fault.what == "crash":
        await _crash(lives[fault.who], fault, write=False)
    elif fault.what == "crash at a write":
        await _crash(lives[fault.who], fault, write=True)
    elif fault.what == "full disk":
        somebody = lives[fault.who]
        fleet.full_disks.add(fault.who)
        somebody.life.disk.full, somebody.life.disk.room = True, amount < 0.5
        await asyncio.sleep(fault.lasts_s)
        fleet.full_disks.discard(fault.who)
        somebody.life.disk.full = False
    elif fault.what == "clock step":
        clock = fleet.clock if amount < 0.7 else broker.clock
        clock.step_s += (amount - 0.35) * 10_000.0  # type: ignore[attr-defined]
    else:
        raise AssertionError(fault.what)


async def _crash(somebody: Supervised, fault: Fault, *, write: bool) -> None:
    """At some step of its own from now, or at some write; at the latest when the fault ends."""
    life = somebody.life
    somebody.down_s = 0.2 * fault.lasts_s
    if write:
        life.disk.dies_at_operation = life.disk.operations + 1 + int(fault.amount * MOST_WRITES)
    else:
        life.process.dies_at_step = life.process.steps + 1 + int(fault.amount * MOST_STEPS)
    await asyncio.sleep(0.8 * fault.lasts_s)
    if not life.killed.is_set() and somebody.life is life:
        life.kill()
    await asyncio.sleep(0.2 * fault.lasts_s)


async def _bad_weather(fleet: Fleet, fault: Fault) -> None:
    broker, amount = fleet.broker, fault.amount
    change = {
        "delay": {"most_s": 2.0 * amount * amount},
        "loss": {"lost": 0.5 * amount},
        "duplication": {"doubled": 0.5 * amount},
        "reordering": {"overtakes": amount, "most_s": 0.05},
    }[fault.what]
    broker.weather = replace(broker.weather, **change)
    await asyncio.sleep(fault.lasts_s)
    broker.weather = Weather()


async def _strike_the_broker(fleet: Fleet, fault: Fault) -> None:
    """One that is not ours is started again by its owner, after a while."""
    loop, broker, stream = fleet.loop, fleet.broker, SUBJECTS.stream
    queue = broker.on_disk.queues.get(stream)
    if fault.what == "pause":
        process = broker.process
        loop.pause(process)
        await asyncio.sleep(fault.lasts_s)
        loop.go_on(process)
    elif fault.what in ("crash", "lost store"):
        broker.kill()
        if fault.what == "lost store":
            broker.empty()
        await _owner_restarts(fleet, fault.lasts_s)
    elif fault.what == "deleted stream":
        broker.delete_queue(stream)
    elif fault.what == "deleted consumer":
        broker.delete_consumer(stream)
    elif fault.what == "frozen stream":
        broker.silent = True
        await _owner_restarts(fleet, PERSON_S)
    elif fault.what == "mute consumer":
        if queue is not None and queue.consumer is not None:
            queue.consumer.delivers = False
    elif fault.what == "other subjects":
        if queue is not None:
            queue.settings = replace(queue.settings, subjects=(SUBJECTS.pulse,))
    elif fault.what == "other filter":
        if queue is not None and queue.consumer is not None:
            queue.consumer.only = SUBJECTS.pulse
    elif fault.what == "full disk":
        broker.full = True
        await asyncio.sleep(fault.lasts_s)
        broker.full = False
        await _owner_restarts(fleet, PERSON_S)
    else:
        raise AssertionError(fault.what)


async def _owner_restarts(fleet: Fleet, after_s: float) -> None:
    if not fleet.broker_is_ours:
        await asyncio.sleep(after_s)
        fleet.broker.restart()
