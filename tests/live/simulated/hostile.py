"""A device that takes every task and does with it what it likes: bad bytes, results twice, late or never, hellos in between."""

import asyncio
from contextlib import suppress

from fedtwin.live.wire.ports import Incoming, ObjectError, TransportError
from fedtwin.live.wire.protocol import Accept, Done, Hello, Reading, Subjects, Task, split_body
from tests.live.adding_device import SAMPLES
from tests.live.simulated.fleet import CPU_HZ, MarkingTrainer
from tests.live.simulated.life import Life
from tests.live.simulated.stations import SERVERS

ACTS = ("honest", "bad bytes", "not a number", "twice", "late", "never", "unreadable", "another token", "fresh hello")
LATE_S = 6.0


async def hostile_device(life: Life) -> bool:
    """Until it is killed. What it uploads whole is an honest update: the model can still be recomputed."""
    name, chance, subjects = life.process.name, life.fleet.chance, Subjects("main")
    transport = await life.ports.connect(SERVERS, name=name, credentials=None, insecure=False)

    async def hello(*, fresh: bool) -> None:
        with suppress(TransportError):
            await transport.request(subjects.hello(name), Hello(samples=SAMPLES, fresh=fresh).encoded(), timeout_s=1.0)

    async def on_ask(message: Incoming) -> None:
        offer = Accept(gain=1e-9, cpu_hz=CPU_HZ, power_w=0.01, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.001)
        await message.respond(offer.encoded())

    async def on_task(message: Incoming) -> None:
        header, body = split_body(message.data)
        with suppress(ValueError):
            tasks.append(asyncio.create_task(act(Task.model_validate_json(header), bytes(body))))

    async def store(kind: str, task: Task, data: bytes) -> None:
        with suppress(TransportError):
            subject = subjects.upload(name) if kind == "u" else subjects.result(name)
            headers = {"Fedtwin-Token": task.token}
            await transport.store(subject, data, message_id=f"{chance.getrandbits(64)}", headers=headers)

    async def act(task: Task, body: bytes) -> None:
        what = chance.choice(ACTS)
        if what == "fresh hello":
            await hello(fresh=True)
        if what in ("never", "fresh hello"):
            return
        if task.object_name is not None:
            try:
                body = await transport.get_object(subjects.models_bucket, task.object_name, task.model_bytes)
            except (TransportError, ObjectError):
                return
        update = MarkingTrainer().train(body, task.round).body
        if what == "bad bytes":
            update = update[: len(update) // 2]
        if what == "not a number":
            update = update[:-4] + b"\xff\xff\xff\xff"
        if what == "late":
            await asyncio.sleep(LATE_S)
        token = f"{chance.getrandbits(128):032x}" if what == "another token" else task.token
        await store("u", task, update)
        result = _done(task, token, len(update)).encoded()
        for _ in range(3 if what == "twice" else 1):
            await store("r", task, result[:-3] if what == "unreadable" else result)

    tasks: list[asyncio.Task[None]] = []
    await transport.subscribe(subjects.ask(name), on_ask)
    await transport.subscribe(subjects.task(name), on_task)
    while True:
        await hello(fresh=chance.random() < 0.2)
        await asyncio.sleep(chance.uniform(0.2, 2.0))


def _done(task: Task, token: str, size: int) -> Done:
    def seconds(value: float) -> Reading:
        return Reading(value=value, source="modelled")

    return Done(
        token=token,
        version=task.version,
        samples=SAMPLES,
        model_bytes=size,
        train_loss=0.0,
        cpu_hz=CPU_HZ,
        cpu_source="modelled",
        power_w=0.01,
        compute_s=seconds(0.1),
        upload_s=seconds(0.1),
        compute_j=seconds(0.1),
        upload_j=seconds(0.001),
        link_s=seconds(0.1),
    )
