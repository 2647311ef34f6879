"""A real fleet under attack: an edge server and honest devices as processes, and a hostile device that speaks by hand."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from nats.aio.client import Client
from nats.aio.msg import Msg
from safetensors.numpy import load, load_file, save_file

from fedtwin.live import LocalFleet
from fedtwin.live.broker.provisioning import provision
from fedtwin.live.wire.nats_connection import close, connect
from fedtwin.live.wire.protocol import (
    TOKEN_HEADER,
    Accept,
    Decline,
    Done,
    Hello,
    Message,
    Reading,
    Subjects,
    Task,
    Welcome,
    split_body,
)
from tests.conftest import FEDTWIN
from tests.live.brokers import LIMIT_S, RUN, own_port

SAMPLES, ENTRIES, IDENTITIES = 50, 64, 80
HONEST = ("honest-0", "honest-1")
QUARANTINE_S = 4.0
SUBJECTS = Subjects(RUN)
SETTINGS = {
    "fleet.devices": 16,
    "fleet.channels": 16,
    "live.start_with": len(HONEST),
    "live.heartbeat_s": 0.3,
    "live.offline_after_s": 3.0,
    "live.ask_timeout_s": 0.5,
    "live.deadline_margin_s": 4.0,
    "live.max_staleness": 100000,
    "live.max_change": 100,
    "live.quarantine_s": QUARANTINE_S,
}
ACCEPT = Accept(gain=1e-9, cpu_hz=1e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.02, upload_j=0.01)
Log = list[dict[str, Any]]


class Fleet:
    """The processes, the folder with everybody's certificates, and the ledger as it is written.

    Models are all zeros and honest devices give them back as they came, so a trace of any refused upload would be seen.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.credentials = folder, folder / "run", folder / "fleet"
        names = [*HONEST, *(f"hostile-{number}" for number in range(IDENTITIES))]
        provision(self.credentials, run=RUN, server_names=[], devices=names)
        before = datetime.now(UTC) - timedelta(days=2)
        provision(self.credentials, run=RUN, server_names=[], devices=["expired"], days=1, _now=before)
        model: dict[str, np.ndarray] = {"weights": np.zeros(ENTRIES, np.float32), "steps": np.zeros(1, np.int64)}
        save_file(model, folder / "model.safetensors")
        self.url = f"nats://127.0.0.1:{own_port()}"
        self._names: Iterator[str] = iter(names[len(HONEST) :])
        self._log: Log = []
        self._read = 0
        self._local = LocalFleet(folder, program=FEDTWIN, stop_s=20.0)

    def __enter__(self) -> Self:
        self._local.edge(
            *("--initial", self.folder / "model.safetensors", "--rounds", 10**6, "--no-evaluator"),
            *("--credentials", self.credentials, "--listen", self.url.removeprefix("nats://")),
            settings=SETTINGS,
        )
        for name in HONEST:
            self._local.device(
                *(name, self.url, "--credentials", self.credentials / "devices" / name),
                *("--no-training", "--samples", SAMPLES, "--radio", "emulated", "--distance-m", 30),
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._local.stop()

    def next_name(self) -> str:
        """An identity nobody has used, so that no quarantine disturbs the next attack."""
        return next(self._names)

    def said(self, name: str) -> str:
        """What a process has written; the broker's log for ``broker``."""
        path = self.run / "broker" / "nats.log" if name == "broker" else self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace")

    def ledger(self) -> Log:
        """All events so far."""
        with suppress(FileNotFoundError), (self.run / "ledger.jsonl").open("rb") as file:
            file.seek(self._read)
            whole = file.read()
            whole = whole[: whole.rfind(b"\n") + 1]
            self._read += len(whole)
            self._log += [json.loads(line) for line in whole.splitlines()]
        return self._log

    def number_of(self, name: str) -> int | None:
        """A device's number: first those of the start, then as they joined."""
        names: list[str] = []
        for event in self.ledger():
            if event["kind"] == "started":
                names = list(event["names"])
            elif event["kind"] == "joined" and names:
                names.append(event["name"])
        return names.index(name) if name in names else None

    def events(self, kind: str, of: str | None = None, *, since: int = 0, **fields: object) -> Log:
        """Events of a kind, of one device, with these fields."""
        number = None if of is None else self.number_of(of)
        return [
            event
            for event in self.ledger()[since:]
            if event["kind"] == kind
            and (of is None or event.get("name") == of or (number is not None and event.get("device") == number))
            and all(event.get(key) == value for key, value in fields.items())
        ]

    async def until(self, found: Callable[[], Log], limit_s: float = LIMIT_S) -> Log:
        """What is looked for, once it is there."""
        end = time.monotonic() + limit_s
        while not (events := found()):
            assert time.monotonic() < end, f"it did not happen; last {self.ledger()[-8:]}; {self.said('edge')[-2000:]}"
            await asyncio.sleep(0.02)
        return events

    async def goes_on(self, applied: int = 2) -> None:
        """Honest uploads are mixed in from here on, no honest device is left out, and the model has nothing of an attack."""
        since = len(self.ledger())

        def honest() -> Log:
            found = [event for name in HONEST for event in self.events("applied", name, since=since)]
            return found if len(found) >= applied else []

        await self.until(honest)
        assert not [event for name in HONEST for event in self.events("quarantined", name)]
        assert all(process.poll() is None for process in self._local.processes.values())
        assert not any(tensor.any() for tensor in self.model().values())

    def model(self) -> dict[str, np.ndarray]:
        """The newest model on the server's disk."""
        while True:
            with suppress(FileNotFoundError):  # replaced by the next one meanwhile
                return load_file(max((self.run / "models").glob("model-*.safetensors")))

    @asynccontextmanager
    async def attacked_by(self, count: int = 1) -> AsyncIterator[list["Hostile"]]:
        """Hostile devices that have joined; the training must go on afterwards, while they are still there."""
        hostile = [Hostile(self, self.next_name()) for _ in range(count)]
        try:
            for one in hostile:
                await one.join()
            yield hostile
            await self.goes_on()
        finally:
            for one in hostile:
                await one.leave()


class Hostile:
    """A device with a valid certificate. It accepts a round when the test wants a task, and declines otherwise."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name
        self.folder = fleet.credentials / "devices" / name
        self.answer: bytes | None = None
        self.answers_after_s = 0.0
        self.inboxes: list[str] = []
        self._tasks: asyncio.Queue[tuple[Task, bytes]] = asyncio.Queue()
        self._client: Client | None = None
        self._sent = 0

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def connect(self) -> Client:
        self._client = await connect(
            [self.fleet.url], name=self.name, inbox=self.name, credentials=self.folder, insecure=False, keep_trying=False
        )
        return self._client

    async def join(self) -> None:
        await self.connect()
        await self.client.subscribe(SUBJECTS.ask(self.name), cb=self._asked)
        await self.client.subscribe(SUBJECTS.task(self.name), cb=self._given)
        assert (await self.hello(Hello(samples=SAMPLES))).accepted

    async def leave(self) -> None:
        if self._client is not None:
            await close(self._client)

    async def hello(self, hello: Hello) -> Welcome:
        answer = await self.client.request(SUBJECTS.hello(self.name), hello.encoded(), timeout=LIMIT_S)
        return Welcome.model_validate_json(answer.data)

    async def _asked(self, message: Msg) -> None:
        self.inboxes.append(message.reply)
        await asyncio.sleep(self.answers_after_s)
        await message.respond(self.answer or Decline(reason="not now").encoded())

    async def _given(self, message: Msg) -> None:
        header, body = split_body(message.data)
        self.answer = None
        self._tasks.put_nowait((Task.model_validate_json(header), bytes(body)))

    async def beat(self, data: bytes = b"{}") -> None:
        await self.client.publish(SUBJECTS.beat(self.name), data)

    async def take(self) -> tuple[Task, bytes]:
        """A task and its model."""
        self.answer = ACCEPT.encoded()
        end = time.monotonic() + LIMIT_S
        while self._tasks.empty():
            assert time.monotonic() < end, f"no task came; {self.fleet.said('edge')[-2000:]}"
            await self.beat()
            await asyncio.sleep(0.05)
        return self._tasks.get_nowait()

    def next_task(self) -> tuple[Task, bytes] | None:
        """One that has come already."""
        return None if self._tasks.empty() else self._tasks.get_nowait()

    async def upload(self, token: str, body: bytes) -> None:
        """Bytes for a task, until the broker has them."""
        await self._send(SUBJECTS.upload(self.name), body, token)

    async def result(self, message: Message | bytes, token: str = "") -> None:
        await self._send(SUBJECTS.result(self.name), message if isinstance(message, bytes) else message.encoded(), token)

    async def _send(self, subject: str, data: bytes, token: str) -> None:
        self._sent += 1
        headers = {TOKEN_HEADER: token, "Nats-Msg-Id": f"{self.name}-{self._sent}"}
        await self.client.jetstream().publish(subject, data, timeout=LIMIT_S, headers=headers)

    async def refused(self, reason: str, what: str = "result", *, since: int = 0) -> dict[str, Any]:
        """The ledger's line about it."""

        def found() -> Log:
            refusals = self.fleet.events("refused", self.name, since=since, what=what)
            return [event for event in refusals if event["reason"].startswith(reason)]

        return (await self.fleet.until(found))[0]

    async def quarantined(self, reason: str) -> dict[str, Any]:
        (event,) = await self.fleet.until(lambda: self.fleet.events("quarantined", self.name))
        assert event["reason"].startswith(reason)
        return event

    async def applied(self, task: Task) -> dict[str, Any]:
        (event,) = await self.fleet.until(lambda: self.fleet.events("applied", token=task.token))
        return event


def attack(fleet: Fleet, scene: Callable[..., Coroutine[Any, Any, None]], hostile: int = 1) -> None:
    """The scene with its hostile devices; honest ones must be mixed in after it, and nothing of it ever."""

    async def whole() -> None:
        async with fleet.attacked_by(hostile) as devices:
            await scene(*devices)

    asyncio.run(whole())


def done_for(task: Task, body: bytes, **changes: object) -> Done:
    """An honest result, but for the changes."""
    readings: dict[str, Any] = {
        key: Reading(value=value, source="modelled")
        for key, value in {"compute_s": 0.1, "upload_s": 0.1, "compute_j": 0.02, "upload_j": 0.01, "link_s": 0.1}.items()
    }
    done = Done(
        token=task.token,
        version=task.version,
        samples=SAMPLES,
        model_bytes=len(body),
        cpu_hz=1e9,
        cpu_source="modelled",
        power_w=0.1,
        **readings,
    )
    return done.model_copy(update=changes)


def marked(body: bytes, mark: float = 1.0) -> dict[str, np.ndarray]:
    """The model with a mark that would be seen if it were mixed in."""
    tensors = {key: np.array(value) for key, value in load(body).items()}
    tensors["weights"] += np.float32(mark)
    return tensors
