"""A device written from docs/protocol.md alone, with nothing of ours: honest at first, then not."""

import asyncio
import contextlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import ServiceUnavailableError
from safetensors.numpy import load, save

from tests.live.plant import LIMIT_S, Plant, events_of, ledger_of, plant
from tests.live.server.test_edge import metrics_at

NAME = "plc-7"
OFFER = {"gain": 1e-9, "cpu_hz": 1e9, "power_w": 0.01, "compute_s": 0.1, "upload_s": 0.1, "compute_j": 0.01, "upload_j": 0.001}


class PlainDevice:
    """JSON, subjects and headers by hand."""

    def __init__(self, client: Client) -> None:
        self.client, self.js = client, client.jetstream()
        self.tasks: asyncio.Queue[tuple[dict[str, Any], bytes]] = asyncio.Queue()

    async def hello(self, name: str = NAME, **fields: object) -> dict[str, Any]:
        answer = await self.client.request(f"fedtwin.main.hello.{name}", json.dumps(fields).encode(), timeout=LIMIT_S)
        welcome: dict[str, Any] = json.loads(answer.data)
        return welcome

    async def listen(self) -> None:
        async def on_ask(message: Msg) -> None:
            assert set(json.loads(message.data)) == {"protocol", "round", "clock_s"}
            await message.respond(json.dumps({"kind": "accept", **OFFER}).encode())

        async def on_task(message: Msg) -> None:
            header, _, body = message.data.partition(b"\n")
            await self.tasks.put((json.loads(header), body))

        await self.client.subscribe(f"fedtwin.main.ask.{NAME}", cb=on_ask)
        await self.client.subscribe(f"fedtwin.main.task.{NAME}", cb=on_task)

    async def task(self) -> tuple[dict[str, Any], bytes]:
        return await asyncio.wait_for(self.tasks.get(), LIMIT_S)

    async def upload(self, token: str, body: bytes, message_id: str | None = None) -> None:
        headers = {"Fedtwin-Token": token, "Nats-Msg-Id": message_id or f"{token}-u"}
        await self._publish(f"fedtwin.main.upload.{NAME}", body, headers)

    async def result(self, message: dict[str, Any], message_id: str | None = None) -> None:
        token = str(message["token"])
        headers = {"Fedtwin-Token": token, "Nats-Msg-Id": message_id or f"{token}-r"}
        await self._publish(f"fedtwin.main.result.{NAME}", json.dumps(message).encode(), headers)

    async def _publish(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        """Until the broker takes it: it holds a few messages of a device, and the edge server may be slower than we are."""
        for _ in range(1000):
            with contextlib.suppress(ServiceUnavailableError):
                await self.js.publish(subject, data, headers=headers)
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the edge server takes nothing")


def done(task: dict[str, Any], body: bytes) -> dict[str, Any]:
    readings = {key: {"value": OFFER[key], "source": "modelled"} for key in ("compute_s", "upload_s", "compute_j", "upload_j")}
    return {
        "kind": "done", "token": task["token"], "version": task["version"], "samples": 9, "model_bytes": len(body),
        "cpu_hz": 1e9, "cpu_source": "modelled", "power_w": 0.01, "link_s": {"value": 0.001, "source": "measured"}, **readings,
    }  # fmt: skip


async def play(fleet: Plant, url: str) -> None:
    client = Client()
    await client.connect([url], inbox_prefix=f"_INBOX.{NAME}".encode())
    try:
        device = PlainDevice(client)
        await strangers(client, device)
        assert (await device.hello())["accepted"]
        assert not events_of(fleet.run, "joined"), "a hello without samples only asks"
        await device.listen()
        welcome = await device.hello(samples=9, fresh=True)
        assert welcome["accepted"] and welcome["config"]["fleet"]["devices"] == 1 and welcome["heartbeat_s"] == 5.0

        first, body = await device.task()
        assert len(body) == first["model_bytes"] and "layer.weight" in load(body)
        await device.upload(first["token"], body)
        await device.result(done(first, body))

        second, body = await device.task()
        assert second["version"] == 1
        await device.upload(first["token"], body, "again-u")
        await device.result(done(first, body), "again-r")
        for _ in range(3):
            await device.result({**done(second, body), "token": uuid.uuid4().hex})
            await asyncio.sleep(0.2)  # the stream has room for four
        await device.result(done(second, body))  # and no upload

        third, body = await device.task()
        assert third["version"] == 1, "nothing was mixed in since"
        assert not (await device.hello(samples=10**12))["accepted"], "more than any device may have"
        for samples in (10, 9):  # they may change, also while a task goes on
            assert (await device.hello(samples=samples))["accepted"]
        assert [event["samples"] for event in events_of(fleet.run, "resized")] == [10, 9]
        await device.upload(third["token"], body)
        await device.result({"kind": "failed", "token": third["token"], "reason": "no oil left"})
        fleet.wait_for("given-up", count=2)
        await client.publish(f"fedtwin.main.beat.{NAME}", b"{}")  # it is asked again once it is heard

        fourth, body = await device.task()
        poisoned = save({"layer.weight": np.full_like(load(body)["layer.weight"], np.nan)})
        await device.upload(fourth["token"], poisoned)
        await device.result(done(fourth, poisoned))
        fleet.wait_for("quarantined")
        await asyncio.sleep(0.3)
        assert device.tasks.empty(), "nobody asks a device in quarantine"
    finally:
        await client.close()


async def strangers(client: Client, device: PlainDevice) -> None:
    """Hellos that are refused, or not even answered."""
    welcome = await device.hello(protocol=2)
    assert not welcome["accepted"] and welcome["reason"].startswith("schema: protocol")
    spoken = await client.subscribe("elsewhere")
    await client.publish(f"fedtwin.main.hello.{NAME}", b"{}", reply="elsewhere")
    await client.publish("fedtwin.main.hello.a$b", b'{"samples": 5}')
    with pytest.raises(TimeoutError):
        await spoken.next_msg(timeout=0.3)


def test_a_device_written_from_the_page(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 1000, "--metrics", "127.0.0.1:0", fleet__devices=1, fleet__channels=1)
        fleet.wait(lambda: "serving" in fleet.log("edge"), "serving")
        asyncio.run(play(fleet, fleet.url()))
        port = int(re.findall(r"metrics  port=(\d+)", fleet.log("edge"))[-1])
        fleet.wait(lambda: metrics_at(port)["fedtwin_tasks_given_up_total"] == 3, "three tasks that came to nothing")
        counted = metrics_at(port)
        assert fleet.stopped("edge") == 0
        ledger = ledger_of(fleet.run)

    def of(kind: str) -> list[dict[str, Any]]:
        return [event for event in ledger if event["kind"] == kind]

    tokens = [event["token"] for event in of("dispatched")]
    assert [event["token"] for event in of("applied")] == tokens[:1]
    assert [event["name"] for event in of("joined")] == [NAME]
    # the third of a kind is counted, and not written down
    refused = [(event["name"], event["what"], event["reason"].partition(":")[0]) for event in of("refused")]
    assert refused == [
        (NAME, "hello", "schema"), ("a$b", "hello", "name"), (NAME, "result", "duplicate"), (NAME, "result", "unassigned"),
        (NAME, "result", "unassigned"), (NAME, "result", "missing"), (NAME, "hello", "samples"), (NAME, "result", "not finite"),
    ]  # fmt: skip
    assert [event["reason"].partition(":")[0] for event in of("given-up")] == ["refused", "failed", "quarantined"]
    assert counted["fedtwin_quarantines_total"] == 1 and counted["fedtwin_tasks_given_up_total"] == 3
    assert counted["fedtwin_uploads_applied_total"] == 1
    assert sum(value for name, value in counted.items() if name.startswith("fedtwin_refusals_total{")) == len(refused) + 1
