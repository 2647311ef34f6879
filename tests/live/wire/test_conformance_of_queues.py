"""Queues as we rely on them: the real broker and the one in memory are held to the same."""

import asyncio

import pytest

from fedtwin.live.wire.ports import (
    MissingError,
    NobodyThereError,
    ObjectError,
    Queue,
    TooManyWaitError,
    TransportError,
)
from tests.live.wire.benches import Bench
from tests.live.wire.hearing import LONG_S, SOON_S, Heard, clients, queue_of


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
