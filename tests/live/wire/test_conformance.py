"""Messages and connections as we rely on them: the real broker and the one in memory are held to the same."""

import asyncio
import time
from pathlib import Path

import pytest

from fedtwin.live.wire.ports import (
    Incoming,
    NoAnswerError,
    NobodyThereError,
    TransportError,
)
from tests.live.wire.benches import Bench, bench
from tests.live.wire.hearing import LONG_S, SOON_S, Heard, clients, queue_of, until


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


def test_what_another_says_is_heard_from_the_moment_a_subscription_is_there(tmp_path: Path) -> None:
    """Of the real broker only: a sensor says its hello once, as soon as the edge server says that it serves."""

    async def scene() -> None:
        async with clients(made, "a", "b") as (a, b):
            for number in range(50):
                heard = Heard()
                await b.subscribe(f"x.{number}", heard)
                await a.publish(f"x.{number}", b"hello")
                await a.flush(LONG_S)
                assert await heard.until(1) == [b"hello"]

    with bench("nats", tmp_path) as made:
        made.play(scene)


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
