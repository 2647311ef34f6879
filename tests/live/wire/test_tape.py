"""A tape and a box at a real broker: who does not know the last number adds nothing, and what is removed leaves no mark."""

from pathlib import Path

import pytest
from nats.aio.client import Client

from fedtwin.live.broker.process import Broker
from fedtwin.live.wire.box import Box
from fedtwin.live.wire.objects import ObjectError
from fedtwin.live.wire.tape import Entry, MissingTapeError, OvertakenError, Tape
from tests.live.server.test_uploads import played


def test_only_who_knows_the_last_number_adds_the_next(tmp_path: Path) -> None:
    async def scene(client: Client, broker: Broker) -> None:  # noqa: ARG001
        tape = Tape(client, "fedtwin-main-ledger", "fedtwin.main.ledger")
        for work in (tape.last(), tape.append(b"", after=0), tape.read(0, 1)):
            with pytest.raises(MissingTapeError):
                await work
        await tape.make()
        assert (await tape.last()).number == 0 and await tape.read(0, 5) == []
        assert [await tape.append(f"{k}".encode(), after=k, headers={"Of": f"{k} two"}) for k in range(5)] == [1, 2, 3, 4, 5]
        await tape.make()
        for wrong in (0, 4, 6):
            with pytest.raises(OvertakenError):
                await tape.append(b"x", after=wrong)
        found = await tape.read(1, 10)
        assert [(entry.number, entry.data, entry.headers["Of"]) for entry in found] == [
            (k + 1, f"{k}".encode(), f"{k} two") for k in range(1, 5)
        ]
        assert await tape.last() == found[-1]
        await tape.remove()
        await tape.remove()
        with pytest.raises(MissingTapeError):
            await tape.last()
        newest = Tape(client, "fedtwin-main-lease", "fedtwin.main.lease", newest_only=True)
        await newest.make()
        for k in range(3):
            await newest.append(f"{k}".encode(), after=k)
        assert await newest.read(0, 2) == [] and (await newest.last())[:2] == (3, b"2")
        await client.jetstream().purge_stream(newest.name)
        assert await newest.last() == Entry(3, b"", {})

    played(tmp_path, scene)


def test_a_box_has_whole_files_and_forgets_what_is_removed(tmp_path: Path) -> None:
    async def scene(client: Client, broker: Broker) -> None:  # noqa: ARG001
        box = Box(client, "fedtwin-main-files")
        await box.make()
        await box.make()
        assert await box.names() == []
        await box.put("code/a.py.1", b"")
        await box.put("model.2", bytes(1_500_000))
        assert await box.names() == ["code/a.py.1", "model.2"] and await box.get("model.2") == bytes(1_500_000)
        for _ in range(2):
            await box.remove("model.2")
        assert await box.names() == ["code/a.py.1"]
        with pytest.raises(ObjectError):
            await box.get("model.2")
        state = (await client.jetstream().stream_info("OBJ_fedtwin-main-files")).state
        assert state.messages == 1

    played(tmp_path, scene)
