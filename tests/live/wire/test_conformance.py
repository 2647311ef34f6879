"""What edge server and devices rely on of a broker: the real one and the one in memory are held to the same."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedtwin.live.wire.ports import (
    Entry,
    Incoming,
    MissingError,
    NoAnswerError,
    NobodyThereError,
    ObjectError,
    OvertakenError,
    Queue,
    Roll,
    Shelf,
    TooManyWaitError,
    Transport,
    TransportError,
)
from tests.live.wire.benches import NUMBERS, Bench, bench

KINDS = ["memory", "nats"]
LONG_S, SOON_S = 30.0, 0.3


@pytest.fixture(scope="module", params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(request.param, tmp_path_factory.mktemp("bench")) as made:
        yield made


@pytest.fixture(scope="module", params=KINDS)
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(request.param, tmp_path_factory.mktemp("secure"), secure=True) as made:
        yield made


@pytest.fixture
def name() -> str:
    """Nobody else's at the broker."""
    return f"t{next(NUMBERS)}"


@dataclass
class Heard:
    """What a handler got, in its order."""

    messages: list[Incoming] = field(default_factory=list)
    acknowledges: bool = False

    async def __call__(self, message: Incoming) -> None:
        self.messages.append(message)
        if self.acknowledges:
            await message.ack()

    @property
    def data(self) -> list[bytes]:
        return [message.data for message in self.messages]

    async def until(self, count: int) -> list[bytes]:
        await until(lambda: len(self.messages) >= count)
        return self.data


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def clients(broker: Bench, *names: str) -> AsyncIterator[list[Transport]]:
    made: list[Transport] = []
    try:
        for name in names:
            made.append(await broker.connect(name))  # noqa: PERF401
        yield made
    finally:
        for client in made:
            await client.close()


def queue_of(name: str, most_waiting: int = 4, most_message_bytes: int = 1000) -> Queue:
    return Queue(name, (f"{name}.up.*", f"{name}.pulse"), most_waiting, most_message_bytes)


# Plain messages


def test_a_message_goes_to_whoever_listens_in_its_order(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "a", "b") as (a, b):
            exact, wild, other = Heard(), Heard(), Heard()
            await b.subscribe(f"{name}.x.1", exact)
            await b.subscribe(f"{name}.x.*", wild)
            await b.subscribe(f"{name}.*", other)
            await b.flush(LONG_S)
            for number in range(20):
                await a.publish(f"{name}.x.{number % 2}", b"%d" % number)
            assert await wild.until(20) == [b"%d" % number for number in range(20)]
            assert await exact.until(10) == [b"%d" % number for number in range(1, 20, 2)]
            assert wild.messages[3].subject == f"{name}.x.1" and wild.messages[3].reply == "" and not other.messages

    broker.play(scene)


def test_a_handler_has_one_message_at_a_time_and_survives_its_own_errors(broker: Bench, name: str) -> None:
    seen: list[str] = []

    async def slow(message: Incoming) -> None:
        seen.append(f"in {message.data.decode()}")
        await asyncio.sleep(0.02)
        if message.data == b"1":
            raise ValueError("this one fails")
        seen.append(f"out {message.data.decode()}")

    async def scene() -> None:
        async with clients(broker, "a") as (a,):
            await a.subscribe(name, slow)
            for number in range(3):
                await a.publish(name, b"%d" % number)
            await until(lambda: "out 2" in seen)

    broker.play(scene)
    assert seen == ["in 0", "out 0", "in 1", "in 2", "out 2"]


def test_who_unsubscribes_hears_no_more(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "a") as (a,):
            heard, last = Heard(), Heard()
            subscription = await a.subscribe(name, heard)
            await a.publish(name, b"1")
            await heard.until(1)
            await subscription.unsubscribe()
            await subscription.unsubscribe()
            await a.subscribe(name, last)
            await a.publish(name, b"2")
            await last.until(1)
            assert heard.data == [b"1"]

    broker.play(scene)


def test_a_request_is_answered_or_nobody_is_there_or_does_not_answer(broker: Bench, name: str) -> None:
    async def answers(message: Incoming) -> None:
        await message.respond(message.data + b"!")

    async def scene() -> None:
        async with clients(broker, "a", "b") as (a, b):
            await b.subscribe(f"{name}.answers", answers)
            await b.subscribe(f"{name}.silent", Heard())
            await b.flush(LONG_S)
            assert await a.request(f"{name}.answers", b"yes", timeout_s=LONG_S) == b"yes!"
            with pytest.raises(NobodyThereError):
                await a.request(f"{name}.nobody", b"", timeout_s=LONG_S)
            with pytest.raises(NoAnswerError):
                await a.request(f"{name}.silent", b"", timeout_s=SOON_S)

    broker.play(scene)


def test_what_is_closed_stays_so(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "a") as (a,):
            assert a.connected and not a.closed and a.max_payload == broker.max_payload
            await a.close()
            await a.close()
            assert a.closed and not a.connected
            with pytest.raises(TransportError):
                await a.publish(name, b"")

    broker.play(scene)


# Queues


def test_what_is_stored_waits_is_delivered_in_order_and_forgotten_when_acknowledged(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "a", "edge") as (a, edge):
            await edge.make_queue(queue_of(name))
            await edge.make_queue(queue_of(name))
            for number in range(3):
                await a.store(f"{name}.up.{number}", b"%d" % number, headers={"Fedtwin-Token": f"token-{number}"})
            heard, more = Heard(acknowledges=True), Heard()
            subscription = await edge.consume(name, heard, redeliver_s=LONG_S)
            assert await heard.until(3) == [b"0", b"1", b"2"]
            assert [message.subject for message in heard.messages] == [f"{name}.up.{number}" for number in range(3)]
            assert heard.messages[1].headers["Fedtwin-Token"] == "token-1"
            stored = [message.stored_wall_s for message in heard.messages]
            assert stored == sorted(stored) and len(set(stored)) == 3
            await a.store(f"{name}.pulse", b"later")
            assert (await heard.until(4))[-1] == b"later"
            async with asyncio.timeout(LONG_S):
                while await edge.waiting(name):
                    await asyncio.sleep(0.01)
            await subscription.unsubscribe()
            await edge.delete_consumer(name)
            await edge.consume(name, more, redeliver_s=LONG_S)
            await a.store(f"{name}.pulse", b"after")
            assert await more.until(1) == [b"after"]
            assert await edge.waiting(name) == 1

    broker.play(scene)


def test_what_is_not_acknowledged_in_time_comes_again(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_queue(queue_of(name))
            await edge.store(f"{name}.up.a", b"1")
            await edge.store(f"{name}.up.a", b"2")
            heard = Heard()
            await edge.consume(name, heard, redeliver_s=SOON_S)
            await heard.until(2)
            await heard.messages[0].ack()
            assert (await heard.until(4))[2:] == [b"2", b"2"]
            assert heard.messages[3].stored_wall_s == heard.messages[1].stored_wall_s

    broker.play(scene)


def test_a_new_consumer_gets_what_the_one_before_did_not_acknowledge_at_once(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_queue(queue_of(name))
            first, second = Heard(), Heard()
            await edge.consume(name, first, redeliver_s=LONG_S)
            for number in range(3):
                await edge.store(f"{name}.up.a", b"%d" % number)
            await first.until(3)
            await first.messages[1].ack()
            await edge.flush(LONG_S)
            await edge.delete_consumer(name)
            await edge.consume(name, second, redeliver_s=LONG_S)
            assert await second.until(2) == [b"0", b"2"]
            assert await edge.waiting(name) == 2

    broker.play(scene)


def test_a_message_that_was_stored_before_is_known_by_its_id(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_queue(queue_of(name))
            heard = Heard(acknowledges=True)
            await edge.consume(name, heard, redeliver_s=LONG_S)
            for message_id in ("one", "one", "two", "one"):
                await edge.store(f"{name}.up.a", message_id.encode(), message_id=message_id)
                await asyncio.sleep(0.05)
            await edge.store(f"{name}.pulse", b"end")
            assert await heard.until(3) == [b"one", b"two", b"end"]

    broker.play(scene)


def test_a_subject_has_no_more_than_its_messages_and_other_subjects_have_theirs(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_queue(queue_of(name, most_waiting=2))
            for _ in range(2):
                await edge.store(f"{name}.up.a", b"a")
            with pytest.raises(TooManyWaitError):
                await edge.store(f"{name}.up.a", b"too many", message_id="refused")
            await edge.store(f"{name}.up.b", b"b")
            heard = Heard()
            await edge.consume(name, heard, redeliver_s=LONG_S)
            assert await heard.until(3) == [b"a", b"a", b"b"]
            with pytest.raises(TooManyWaitError):
                await edge.store(f"{name}.up.a", b"delivered, and not acknowledged", message_id="refused")
            await heard.messages[0].ack()
            await edge.flush(LONG_S)
            await edge.store(f"{name}.up.a", b"now", message_id="refused")
            assert (await heard.until(4))[-1] == b"now"

    broker.play(scene)


def test_what_is_too_large_or_has_no_queue_is_refused(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_queue(queue_of(name, most_message_bytes=1000))
            with pytest.raises(TransportError):
                await edge.store(f"{name}.up.a", bytes(5000))
            with pytest.raises(NobodyThereError):
                await edge.store(f"{name}.elsewhere", b"")
            await edge.store(f"{name}.up.a", b"the connection stands")

    broker.play(scene)


def test_a_plain_message_on_a_queue_s_subject_is_stored_too(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_queue(queue_of(name))
            heard = Heard(acknowledges=True)
            await edge.consume(name, heard, redeliver_s=LONG_S)
            await edge.publish(f"{name}.up.a", b"plain")
            assert await heard.until(1) == [b"plain"]

    broker.play(scene)


def test_settings_of_a_queue_are_compared_and_set(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            wanted = queue_of(name)
            changed = Queue(name, (f"{name}.pulse",), wanted.most_waiting, wanted.most_message_bytes)
            await edge.make_queue(wanted)
            await edge.store(f"{name}.up.a", b"stays")
            assert await edge.queue_is(wanted)
            await edge.update_queue(changed)
            assert not await edge.queue_is(wanted)
            with pytest.raises(NobodyThereError):
                await edge.store(f"{name}.up.a", b"")
            await edge.update_queue(wanted)
            assert await edge.queue_is(wanted)
            heard = Heard(acknowledges=True)
            await edge.consume(name, heard, redeliver_s=LONG_S)
            assert await edge.consumes_all(name)
            assert await heard.until(1) == [b"stays"]

    broker.play(scene)


def test_what_is_missing_is_said_to_be(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            queue = queue_of(name)
            for asked in (edge.update_queue(queue), edge.queue_is(queue), edge.waiting(name), edge.consumes_all(name)):
                with pytest.raises(MissingError):
                    await asked
            with pytest.raises(MissingError):
                await edge.consume(name, Heard(), redeliver_s=LONG_S)
            await edge.delete_consumer(name)
            await edge.make_queue(queue)
            await edge.delete_consumer(name)
            with pytest.raises(MissingError):
                await edge.consumes_all(name)
            with pytest.raises(MissingError):
                await edge.put_object(name, "x", b"")
            with pytest.raises(ObjectError):
                await edge.get_object(name, "x", 1000)
            with pytest.raises(TransportError):
                await edge.put(name, "key", b"")

    broker.play(scene)


# Tapes


def test_only_who_knows_the_last_number_of_a_tape_adds_the_next(broker: Bench, name: str) -> None:
    tape = Roll(name, f"{name}.tape")

    async def scene() -> None:
        async with clients(broker, "edge", "second") as (edge, second):
            for asked in (edge.last_of(tape), edge.append(tape, b"", after=0), edge.entries(tape, 0, 1)):
                with pytest.raises(MissingError):
                    await asked
            await edge.make_tape(tape)
            assert await edge.last_of(tape) == Entry(0, b"", {}) and await edge.entries(tape, 0, 5) == []
            with pytest.raises(OvertakenError):
                await edge.append(tape, b"", after=1)
            numbers = [await edge.append(tape, b"%d" % k, after=k, headers={"Of": f"{k} two"}) for k in range(5)]
            assert numbers == [1, 2, 3, 4, 5]
            await second.make_tape(tape)
            for wrong in (0, 4, 6):
                with pytest.raises(OvertakenError):
                    await second.append(tape, b"x", after=wrong)
            found = await second.entries(tape, 1, 10)
            assert [(entry.number, entry.data, entry.headers["Of"]) for entry in found] == [
                (k + 1, b"%d" % k, f"{k} two") for k in range(1, 5)
            ]
            assert await second.entries(tape, 1, 2) == found[:2] and await second.entries(tape, 5, 2) == []
            assert await second.last_of(tape) == found[-1]
            assert Shelf("queue", name) in await edge.shelves()
            assert await second.append(tape, b"second", after=5) == 6
            with pytest.raises(OvertakenError):
                await edge.append(tape, b"first", after=5)
            await edge.delete_tape(tape)
            await edge.delete_tape(tape)
            with pytest.raises(MissingError):
                await second.append(tape, b"", after=6)

    broker.play(scene)


def test_of_many_appends_at_once_all_that_know_their_number_are_added(broker: Bench, name: str) -> None:
    """One connection's messages come in their order, so nobody waits for an answer."""
    tape = Roll(name, f"{name}.tape")

    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_tape(tape)
            made = await asyncio.gather(*(edge.append(tape, b"%d" % k, after=k) for k in range(30)))
            assert made == list(range(1, 31))
            assert [entry.data for entry in await edge.entries(tape, 0, 30)] == [b"%d" % k for k in range(30)]

    broker.play(scene)


def test_a_tape_of_the_newest_only_has_one_message_and_counts_them_all(broker: Bench, name: str) -> None:
    tape = Roll(name, f"{name}.tape", newest_only=True)

    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_tape(tape)
            for k in range(3):
                await edge.append(tape, b"%d" % k, after=k)
            assert (await edge.last_of(tape))[:2] == (3, b"2") and await edge.entries(tape, 0, 2) == []
            assert [entry.number for entry in await edge.entries(tape, 2, 2)] == [3]

    broker.play(scene)


def test_a_device_may_not_write_to_a_tape_and_the_edge_server_may(secure: Bench) -> None:
    tape = Roll("fedtwin-main-lease", "fedtwin.main.lease")

    async def scene() -> None:
        async with clients(secure, "edge", "press-1") as (edge, one):
            await edge.make_tape(tape)
            assert await edge.append(tape, b"edge", after=0) == 1
            with pytest.raises(NoAnswerError):
                await one.append(tape, b"device", after=1, answer_s=SOON_S)
            assert one.refused(tape.subject) and not edge.refused(tape.subject)
            assert (await edge.last_of(tape)).data == b"edge"

    secure.play(scene)


# Buckets, tables, shelves


def test_objects_are_there_whole_in_place_of_the_one_before(broker: Bench, name: str) -> None:
    large = bytes(range(256)) * 4096

    async def scene() -> None:
        async with clients(broker, "edge", "b") as (edge, b):
            await edge.make_bucket(name, 2**24)
            await edge.make_bucket(name, 2**24)
            await edge.put_object(name, "model", b"old")
            await edge.put_object(name, "model", large)
            await edge.put_object(name, "empty", b"")
            assert await b.get_object(name, "model", len(large)) == large
            assert await b.get_object(name, "empty", 10) == b""
            with pytest.raises(ObjectError, match="size"):
                await b.get_object(name, "model", len(large) - 1)
            with pytest.raises(ObjectError, match="missing"):
                await b.get_object(name, "other", 1000)
            await edge.delete_object(name, "model")
            with pytest.raises(ObjectError):
                await b.get_object(name, "model", len(large))

    broker.play(scene)


def test_objects_that_are_erased_leave_no_name(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            with pytest.raises(MissingError):
                await edge.object_names(name)
            await edge.make_bucket(name, -1)
            assert await edge.object_names(name) == []
            await edge.put_object(name, "model.2", bytes(1_500_000))
            await edge.put_object(name, "code/a.py.1", b"")
            assert await edge.object_names(name) == ["code/a.py.1", "model.2"]
            for _ in range(2):
                await edge.erase_object(name, "model.2")
            assert await edge.object_names(name) == ["code/a.py.1"]
            with pytest.raises(ObjectError):
                await edge.get_object(name, "model.2", 2_000_000)

    broker.play(scene)


def test_a_full_bucket_forgets_its_oldest_object(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_bucket(name, 400_000)
            for number in range(8):
                await edge.put_object(name, f"object-{number}", bytes([number]) * 100_000)
            assert await edge.get_object(name, "object-7", 100_000) == bytes([7]) * 100_000
            with pytest.raises(ObjectError):
                await edge.get_object(name, "object-0", 100_000)

    broker.play(scene)


def test_shelves_are_all_that_there_are(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            await edge.make_queue(queue_of(name))
            await edge.make_bucket(f"{name}-objects", 2**20)
            await edge.make_table(f"{name}-table", 3)
            await edge.make_table(f"{name}-table", 3)
            await edge.put(f"{name}-table", "device.a", b"1")
            found = {shelf for shelf in await edge.shelves() if shelf.name.startswith(name)}
            assert found == {Shelf("queue", name), Shelf("bucket", f"{name}-objects"), Shelf("table", f"{name}-table")}

    broker.play(scene)


# Connections


def test_a_broker_that_was_killed_comes_back_with_what_it_stored(broker: Bench, name: str) -> None:
    async def scene() -> None:
        back: list[str] = []

        async def on_reconnect() -> None:
            back.append("back")

        edge, a = await broker.connect("edge", on_reconnect), await broker.connect("a")
        try:
            heard, stored = Heard(), Heard()
            await edge.subscribe(f"{name}.say", heard)
            await edge.make_queue(queue_of(name))
            await edge.make_bucket(name, 2**20)
            await edge.put_object(name, "model", b"kept")
            await edge.consume(name, stored, redeliver_s=SOON_S)
            await a.store(f"{name}.up.a", b"stored", message_id="stored")
            await stored.until(1)
            broker.kill()
            await until(lambda: not edge.connected and not a.connected)
            with pytest.raises(NoAnswerError):
                await a.store(f"{name}.up.a", b"lost or not", message_id="again", answer_s=SOON_S)
            broker.start_again()
            await until(lambda: edge.connected and a.connected and bool(back))
            assert edge.reconnects == 1 and back == ["back"]
            await a.store(f"{name}.up.a", b"lost or not", message_id="again", answer_s=LONG_S)
            await a.store(f"{name}.up.a", b"stored", message_id="stored", answer_s=LONG_S)
            await a.publish(f"{name}.say", b"hello again")
            assert await heard.until(1) == [b"hello again"]
            await until(lambda: {b"stored", b"lost or not"} <= set(stored.data[1:]))  # delivered again, nothing acknowledged it
            assert await edge.waiting(name) == 2
            assert await a.get_object(name, "model", 1000) == b"kept"
        finally:
            await edge.close()
            await a.close()

    broker.play(scene)


# Rights


def test_a_device_speaks_and_listens_under_its_own_name_only(secure: Bench) -> None:
    async def answers(message: Incoming) -> None:
        await message.respond(b"yes")

    async def scene() -> None:
        async with clients(secure, "edge", "press-1", "press-2") as (edge, one, two):
            hellos, spied, own = Heard(), Heard(), Heard()
            await edge.subscribe("fedtwin.main.hello.*", hellos)
            await edge.flush(LONG_S)
            await one.publish("fedtwin.main.hello.press-2", b"not me")
            await one.publish("fedtwin.main.hello.press-1", b"me")
            assert await hellos.until(1) == [b"me"]
            await until(lambda: one.refused("fedtwin.main.hello.press-2"))
            assert not one.refused("fedtwin.main.hello.press-1")
            await one.subscribe("fedtwin.main.task.press-2", spied)
            await one.subscribe("fedtwin.main.task.*", spied)
            await two.subscribe("fedtwin.main.task.press-2", own)
            await two.subscribe("fedtwin.main.ask.press-2", answers)
            await asyncio.gather(one.flush(LONG_S), two.flush(LONG_S))
            await edge.publish("fedtwin.main.task.press-2", b"secret")
            assert await own.until(1) == [b"secret"]
            assert await edge.request("fedtwin.main.ask.press-2", b"", timeout_s=LONG_S) == b"yes"
            assert not spied.messages

    secure.play(scene)


def test_a_device_stores_under_its_own_name_and_runs_nothing(secure: Bench) -> None:
    queue = Queue("fedtwin-main-uploads", ("fedtwin.main.upload.*", "fedtwin.main.result.*", "fedtwin.main.pulse"), 4, 1000)

    async def scene() -> None:
        async with clients(secure, "edge", "press-1") as (edge, one):
            await edge.make_queue(queue)
            heard = Heard(acknowledges=True)
            await edge.consume(queue.name, heard, redeliver_s=LONG_S)
            with pytest.raises(NoAnswerError):
                await one.store("fedtwin.main.upload.press-2", b"not me", answer_s=SOON_S)
            with pytest.raises(NoAnswerError):
                await edge.store("fedtwin.main.upload.press-1", b"not a device", answer_s=SOON_S)
            with pytest.raises(NoAnswerError):
                await one.shelves(answer_s=SOON_S)
            await one.store("fedtwin.main.upload.press-1", b"me")
            await edge.store("fedtwin.main.pulse", b"")
            assert await heard.until(2) == [b"me", b""]

    secure.play(scene)


def test_waiting_costs_nothing_in_memory(name: str) -> None:
    async def scene() -> None:
        async with clients(made, "edge") as (edge,):
            await edge.make_queue(queue_of(name))
            await edge.store(f"{name}.up.a", b"again and again")
            heard = Heard()
            await edge.consume(name, heard, redeliver_s=100.0)
            await asyncio.sleep(1050.0)
            assert len(heard.messages) == 11

    with bench("memory", Path()) as made:
        begun = time.process_time()
        made.play(scene)
        assert time.process_time() - begun < 60.0
