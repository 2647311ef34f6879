"""Tapes, buckets and tables as we rely on them: the real broker and the one in memory are held to the same."""

import asyncio

import pytest

from fedtwin.live.wire.ports import (
    Entry,
    MissingError,
    ObjectError,
    OvertakenError,
    Roll,
    Shelf,
)
from tests.live.wire.benches import Bench
from tests.live.wire.hearing import clients, queue_of


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


def test_an_append_that_names_what_it_follows_is_not_taken_for_anothers_next(broker: Bench, name: str) -> None:
    """The first of three is turned away because of another writer, whose message has the number that the second expects."""
    tape = Roll(name, f"{name}.tape")

    async def scene() -> None:
        async with clients(broker, "edge", "second") as (edge, second):
            await edge.make_tape(tape)
            assert await second.append(tape, b"second", after=0, name="s1") == 1
            sent = [edge.append(tape, b"1", after=0, name="e1"), edge.append(tape, b"2", after=1, name="e2", follows="e1")]
            sent.append(edge.append(tape, b"3", after=2, name="e3", follows="e2"))
            answers = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(answer) for answer in answers] == [OvertakenError] * 3
            assert [entry.data for entry in await edge.entries(tape, 0, 9)] == [b"second"]
            assert await second.append(tape, b"more", after=1, name="s2", follows="s1") == 2

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


def test_a_table_is_read_whole_with_the_last_value_of_every_key(broker: Bench, name: str) -> None:
    async def scene() -> None:
        async with clients(broker, "edge") as (edge,):
            with pytest.raises(MissingError):
                await edge.table(name)
            await edge.make_table(name, 2)
            assert await edge.table(name) == {}
            for number in range(3):
                await edge.put(name, "device.a", b"%d" % number)
            await edge.put(name, "run", b"")
            many = {f"device.b{number}": b"%d" % number for number in range(300)}
            for key, value in many.items():
                await edge.put(name, key, value)
            assert await edge.table(name) == {"device.a": b"2", "run": b"", **many}

    broker.play(scene)
