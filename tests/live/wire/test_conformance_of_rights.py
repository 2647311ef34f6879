"""Rights as we rely on them: the real broker and the one in memory are held to the same."""

import asyncio

import pytest

from fedtwin.live.wire.ports import (
    Incoming,
    NoAnswerError,
    Queue,
    Roll,
)
from tests.live.wire.benches import Bench
from tests.live.wire.hearing import LONG_S, SOON_S, Heard, clients, until


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
