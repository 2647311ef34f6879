"""Faults of the broker that once stopped a fleet without a word: afterwards the real processes mix in uploads again."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client

from fedtwin.live.broker import Broker, BrokerOptions
from tests.live.plant import Plant, events_of, ledger_of, plant

AGAIN_S = 15.0
DEVICES = ("d0", "d1", "d2")
STREAM = "fedtwin-main-uploads"


def begin(fleet: Plant, *arguments: object, **settings: object) -> None:
    defaults = {"fleet__devices": len(DEVICES), "fleet__channels": len(DEVICES)}
    fleet.new_edge("--rounds", 1_000_000, *arguments, **{**defaults, **settings})


def join(fleet: Plant, url: str, *arguments: object) -> None:
    for name in DEVICES:
        fleet.device(name, url, *(arguments or ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)))


def mixes_again(fleet: Plant, count: int = 5, limit_s: float = AGAIN_S) -> None:
    """Uploads of tasks that are handed out from now on, so that none counts that was on its way before."""
    now_s = ledger_of(fleet.run)[-1]["at_s"]

    def looked() -> bool:
        sent = {event["token"] for event in events_of(fleet.run, "dispatched") if event["at_s"] > now_s}
        return sum(event["token"] in sent for event in events_of(fleet.run, "applied")) >= count

    fleet.wait(looked, "uploads of new tasks", limit_s)
    tokens = [event["token"] for event in events_of(fleet.run, "applied")]
    assert len(tokens) == len(set(tokens))


def broker_pid(fleet: Plant) -> int:
    return int((fleet.run / "broker" / "nats.pid").read_text(encoding="utf-8"))


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_broker_that_pauses_during_the_first_uploads(tmp_path: Path) -> None:
    """The pause is not the link: who has measured it would decline for ever."""
    training = tmp_path / "train.sh"
    training.write_text('sleep 0.3; cp "$FEDTWIN_MODEL" "$FEDTWIN_UPDATE"\n', encoding="utf-8")
    with plant(tmp_path) as fleet:
        begin(fleet)
        join(fleet, fleet.url(), "--command", f"sh {training}", "--samples", 40, "--radio", "measured", "--cpu-hz", 1e9)
        fleet.wait_for("dispatched", count=len(DEVICES))
        with frozen(broker_pid(fleet)):
            time.sleep(3.0)
        mixes_again(fleet)


@pytest.mark.parametrize("managed", [True, False], ids=["ours", "theirs"])
def test_a_broker_that_comes_back_with_an_empty_store(tmp_path: Path, managed: bool) -> None:
    broker = None if managed else Broker.start(tmp_path / "nats", BrokerOptions(tmp_path / "store"), die_with_parent=True)
    try:
        with plant(tmp_path) as fleet:
            begin(fleet, *(() if broker is None else ("--server", broker.url)))
            join(fleet, fleet.url() if broker is None else broker.url)
            fleet.wait_for("applied", count=3)
            if broker is None:
                with frozen(fleet.processes["edge"].pid):  # it would start the broker again before the store is gone
                    os.kill(broker_pid(fleet), signal.SIGKILL)
                    shutil.rmtree(fleet.run / "broker" / "store")
            else:
                broker.stop()
                shutil.rmtree(tmp_path / "store")
                broker.restart()
            mixes_again(fleet)
            assert "the stream was missing and is made again" in fleet.log("edge")
    finally:
        if broker is not None:
            broker.stop()


def test_a_consumer_that_was_deleted(tmp_path: Path) -> None:
    async def delete(url: str) -> None:
        client = Client()
        await client.connect([url])
        await client.jetstream().delete_consumer(STREAM, "edge")
        await client.close()

    with plant(tmp_path) as fleet:
        begin(fleet)
        join(fleet, fleet.url())
        fleet.wait_for("applied", count=3)
        asyncio.run(delete(fleet.url()))
        mixes_again(fleet)
