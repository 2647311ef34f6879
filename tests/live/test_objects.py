"""Models larger than a message go by the object store both ways; devices train by commands; nobody there loads PyTorch."""

import asyncio
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from fedtwin.live.broker.process import Broker, BrokerOptions
from fedtwin.live.run.ledger import Ledger
from fedtwin.live.run.opening import resume
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.deadlines import Deadlines
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.wire.nats_transport import NatsTransport, connect
from fedtwin.live.wire.ports import ObjectError
from fedtwin.live.wire.protocol import TOKEN_HEADER
from tests.live.brokers import running, until
from tests.live.plant import Plant, ledger_of, plant, write_model
from tests.live.run.test_live_run import CODEC, begun, dispatch, done_of, weights

ENTRIES, PAYLOAD_BYTES, ROUNDS = 250_000, 64 * 1024, 24
TRAINING = """
import json, os, sys
from safetensors.numpy import load_file, save_file
model = load_file(os.environ["FEDTWIN_MODEL"])
model["layer.weight"] = model["layer.weight"] + 1
save_file(model, os.environ["FEDTWIN_UPDATE"])
report = {"train_loss": float(os.environ["FEDTWIN_ROUND"]), "samples": os.environ["FEDTWIN_SAMPLES"]}
open(os.environ["FEDTWIN_REPORT"], "w").write(json.dumps(report))
sys.stdout.buffer.write(bytes([255, 254]))  # whatever it prints is its own business
"""


@dataclass
class Run:
    plant: Plant
    ledger: list[dict[str, Any]]
    loaded: dict[str, str]

    def events(self, kind: str, device: int | None = None) -> list[dict[str, Any]]:
        return [event for event in self.ledger if event["kind"] == kind and device in (None, event["device"])]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """adder trains by a command, broken's command fails, plain gives models back; the broker takes small messages only."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    write_model(folder / "initial.safetensors", ENTRIES)
    options = BrokerOptions(folder / "store", max_payload_bytes=PAYLOAD_BYTES)
    broker = Broker.start(folder / "broker", options, die_with_parent=True)
    try:
        with plant(folder) as fleet:
            fleet.new_edge("--server", broker.url, "--rounds", ROUNDS, fleet__devices=3, fleet__channels=2)
            fleet.device("adder", broker.url, "--samples", 30, "--command", f"{sys.executable} {folder / 'train.py'}")
            code = "import sys; sys.exit('no oil left')"
            fleet.device("broken", broker.url, "--samples", 30, "--command", f'{sys.executable} -c "{code}"')
            fleet.device("plain", broker.url, "--samples", 30, "--no-training")
            fleet.wait_for("applied", count=6)
            loaded = {name: Path(f"/proc/{process.pid}/maps").read_text() for name, process in fleet.processes.items()}
            assert fleet.ended("edge") == 0, fleet.log("edge")
            yield Run(fleet, ledger_of(fleet.run), loaded)
    finally:
        broker.stop()


def test_the_model_is_larger_than_a_message(run: Run) -> None:
    began = run.ledger[0]
    assert began["model_bytes"] > 10 * PAYLOAD_BYTES
    applied = run.events("applied")
    assert {event["uploaded_bytes"] for event in run.events("applied", 2)} == {began["model_bytes"]}
    assert len(applied) >= 8 and not run.events("refused")


def test_a_command_trains(run: Run) -> None:
    assert [event["names"] for event in run.ledger if event["kind"] == "started"] == [["adder", "broken", "plain"]]
    rounds = {event["token"]: event["round"] for event in run.events("dispatched")}
    trained = run.events("applied", 0)
    assert trained
    assert [event["train_loss"] for event in trained] == [float(rounds[event["token"]]) for event in trained]
    assert all("train_loss" not in event for event in run.events("applied", 2))
    start = load_file(run.plant.folder / "initial.safetensors")["layer.weight"]
    moved = load_file(run.plant.run / "model.safetensors")["layer.weight"] - start
    assert moved.min() > 0.05
    np.testing.assert_allclose(moved, moved[0], atol=1e-3)


def test_a_command_that_fails_ends_its_task_only(run: Run) -> None:
    given_up = run.events("given-up")
    assert given_up and {event["device"] for event in given_up} == {1}
    for event in given_up:
        assert event["reason"].startswith("failed: ") and event["reason"].endswith("ended with 1: no oil left")
    assert {event["status"] for event in given_up} == {"offline"}
    outcomes = {row["outcome"] for row in pq.read_table(run.plant.run / "tasks.parquet").to_pylist() if row["name"] == "broken"}
    assert outcomes == {f"given up: {given_up[0]['reason']}"}
    summary = json.loads((run.plant.run / "summary.json").read_text(encoding="utf-8"))
    assert summary["rounds"] + summary["passed_rounds"] == ROUNDS and summary["tasks_given_up"] == len(given_up)


def test_a_measured_link_says_so(run: Run) -> None:
    for event in run.events("applied"):
        sources = event["sources"]
        assert (sources["compute_s"], sources["upload_s"], sources["upload_j"]) == ("measured", "measured", "modelled")
        assert sources["compute_j"] in ("measured", "modelled")
        assert event["link_s"] > 0.0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what a process has loaded on Linux only")
def test_neither_edge_server_nor_a_device_with_a_command_loads_pytorch(run: Run) -> None:
    for name, maps in run.loaded.items():
        assert "libpython" in maps or "python" in maps
        assert "torch" not in maps, name


WORDY = """
import os
from safetensors.numpy import load_file, save_file
save_file(load_file(os.environ["FEDTWIN_MODEL"]), os.environ["FEDTWIN_UPDATE"], metadata={"words": "x" * %d})
"""


@pytest.mark.slow
def test_an_update_larger_than_its_model(tmp_path: Path) -> None:
    """A little larger, it goes as an object where the model itself did not; a lot larger, its task fails, and that is all."""
    for name, count in (("wordy", 2000), ("fat", 100_000)):
        (tmp_path / f"{name}.py").write_text(WORDY % count, encoding="utf-8")
    write_model(tmp_path / "initial.safetensors", (PAYLOAD_BYTES - 4096 - 500) // 4)
    options = BrokerOptions(tmp_path / "store", max_payload_bytes=PAYLOAD_BYTES)
    broker = Broker.start(tmp_path / "broker", options, die_with_parent=True)
    try:
        with plant(tmp_path) as fleet:
            fleet.new_edge("--server", broker.url, "--rounds", 10, fleet__devices=2, fleet__channels=2)
            for name in ("fat", "wordy"):
                fleet.device(name, broker.url, "--samples", 30, "--command", f"{sys.executable} {tmp_path / name}.py")
            assert fleet.ended("edge") == 0
            ledger = ledger_of(fleet.run)
    finally:
        broker.stop()
    applied = [event for event in ledger if event["kind"] == "applied"]
    assert applied and {event["device"] for event in applied} == {1}
    assert all(event["uploaded_bytes"] > PAYLOAD_BYTES - 4096 > ledger[0]["model_bytes"] for event in applied)
    given_up = [event for event in ledger if event["kind"] == "given-up"]
    assert given_up and {event["device"] for event in given_up} == {0}
    assert all(event["reason"].startswith("failed: the update has 16") for event in given_up)


def test_killed_with_a_large_upload_in_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is all there is of an upload until it is in the ledger: it is deleted after that."""

    def killed(*_: object) -> None:
        raise RuntimeError("killed here")

    async def scene(transport: NatsTransport) -> None:
        live = begun(tmp_path / "run")
        sent, context = dispatch(live), EdgeContext(live, transport)
        name = live.core.names[sent.device]
        bucket = context.subjects.uploads_bucket(name)
        await transport.make_bucket(bucket, 2**20)
        uploads = Uploads(context)
        await uploads.open()
        await transport.put_object(bucket, sent.token, CODEC.encode(weights(1.0)))
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "append", killed)
            done = done_of(sent).model_copy(update={"object_name": sent.token})
            await transport.store(context.subjects.result(name), done.encoded())
            assert await until(lambda: str(uploads.trouble) == "killed here")
        live._lock.release()

        again = resume(tmp_path / "run")
        await Uploads(EdgeContext(again, transport)).open()
        assert await until(lambda: again.core.applied == 1)
        np.testing.assert_allclose(again.model.weights.floats, 0.5)
        with pytest.raises(ObjectError):
            while await transport.get_object(bucket, sent.token, 2**20):  # until it is deleted
                await asyncio.sleep(0.02)
        again.close()

    async def connected() -> None:
        transport = await connect([broker.url], name="edge", credentials=None, insecure=False)
        try:
            await scene(transport)
        finally:
            await transport.close()

    with running(tmp_path) as broker:
        asyncio.run(connected())


def test_given_up_between_upload_and_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline passes when the bytes are here and what they took is not: mixed in late, not lost."""

    async def scene() -> None:
        transport = await connect([broker.url], name="edge", credentials=None, insecure=False)
        try:
            context = EdgeContext(live, transport)
            uploads = Uploads(context)
            await uploads.open()
            name, body = live.core.names[sent.device], CODEC.encode(weights(1.0))
            await transport.store(context.subjects.upload(name), body, headers={TOKEN_HEADER: sent.token})
            assert await until(lambda: sent.token in uploads._held)
            with monkeypatch.context() as patch:
                patch.setattr(live.core, "overdue", lambda _: [live.core.open[sent.token]])
                deadlines = Deadlines(context, uploads)
                deadlines._answered_s = math.inf  # by the broker
                deadlines.give_up_overdue()
            assert sent.token in live.core.given_up
            await transport.store(context.subjects.result(name), done_of(sent).encoded())
            assert await until(lambda: live.core.applied == 1)
        finally:
            await transport.close()

    with running(tmp_path) as broker:
        live = begun(tmp_path / "run")
        sent = dispatch(live)
        asyncio.run(scene())
        live.close()
