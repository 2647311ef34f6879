"""Faults of the broker that once stopped a fleet without a word: afterwards the real processes mix in uploads again."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.errors import KeyNotFoundError, NotFoundError

from fedtwin.live.broker.process import Broker, BrokerOptions
from fedtwin.live.broker.provisioning import provision
from fedtwin.live.wire.protocol import Telemetry
from fedtwin.processes import runs_with
from tests.live.brokers import frozen
from tests.live.plant import LIMIT_S, Plant, events_of, ledger_of, plant, until, write_model

DEVICES = ("d0", "d1", "d2")
STREAM = "fedtwin-main-uploads"


def begin(fleet: Plant, *arguments: object, **settings: object) -> None:
    defaults = {"fleet__devices": len(DEVICES), "fleet__channels": len(DEVICES)}
    fleet.new_edge("--rounds", 1_000_000, *arguments, **{**defaults, **settings})


def join(fleet: Plant, url: str, *arguments: object) -> None:
    for name in DEVICES:
        fleet.device(name, url, *(arguments or ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)))


def mixes_again(fleet: Plant, count: int = 5) -> None:
    """Uploads of tasks that are handed out from now on, so that none counts that was on its way before."""
    now_s = ledger_of(fleet.run)[-1]["at_s"]

    def looked() -> bool:
        sent = {event["token"] for event in events_of(fleet.run, "dispatched") if event["at_s"] > now_s}
        return sum(event["token"] in sent for event in events_of(fleet.run, "applied")) >= count

    fleet.wait(looked, "uploads of new tasks")
    tokens = [event["token"] for event in events_of(fleet.run, "applied")]
    assert len(tokens) == len(set(tokens))


async def twin_shows(url: str, key: str) -> bool:
    """Within a minute: the bucket is written now and then, not with every upload."""
    client = Client()
    await client.connect([url])
    try:
        for _ in range(120):
            with suppress(NotFoundError, KeyNotFoundError):
                return bool((await (await client.jetstream().key_value("fedtwin-main-twin")).get(key)).value)
            await asyncio.sleep(0.5)
        return False
    finally:
        await client.close()


def broker_pid(fleet: Plant) -> int:
    return int((fleet.run / "broker" / "nats.pid").read_text(encoding="utf-8"))


@contextmanager
def broker_of_others(folder: Path, payload_bytes: int = 2**23) -> Iterator[Broker]:
    options = BrokerOptions(folder / "store", max_payload_bytes=payload_bytes)
    broker = Broker.start(folder / "nats", options, die_with_parent=True)
    try:
        yield broker
    finally:
        broker.stop()


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


@pytest.mark.parametrize("whose", ["ours", "theirs", "theirs, models as objects"])
def test_a_broker_that_comes_back_with_an_empty_store(tmp_path: Path, whose: str) -> None:
    payload_bytes = 2**16 if "objects" in whose else 2**23
    write_model(tmp_path / "initial.safetensors", 30_000 if "objects" in whose else 64)
    others = nullcontext() if whose == "ours" else broker_of_others(tmp_path, payload_bytes)
    with plant(tmp_path) as fleet, others as broker:
        begin(fleet, *(() if broker is None else ("--server", broker.url)))
        join(fleet, fleet.url() if broker is None else broker.url)
        fleet.wait_for("applied", count=3)
        if broker is None:
            with frozen(fleet.processes["edge"].pid):  # it would start the broker again before the store is gone
                pid = broker_pid(fleet)
                os.kill(pid, signal.SIGKILL)
                until(lambda: not runs_with(pid, "nats-server"), "the end of the broker")
                shutil.rmtree(fleet.run / "broker" / "store")
        else:
            broker.stop()
            shutil.rmtree(broker.options.store)
            broker.restart()
        mixes_again(fleet)
        assert "the stream was missing and is made again" in fleet.log("edge")
        assert asyncio.run(twin_shows(fleet.url() if broker is None else broker.url, "device.d0"))


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


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of a few megabytes on the folder, and what was in it; gives a file that fills it when it is written."""
    aside = folder.with_name("aside")
    if folder.exists():
        folder.rename(aside)
    folder.mkdir(parents=True)
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=False).returncode:
        pytest.skip("a disk can be mounted by root only")
    try:
        if aside.exists():
            shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield folder / "filling"
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(filling: Path) -> None:
    with filling.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def metric(fleet: Plant, name: str) -> float:
    port = re.findall(r"metrics  port=(\d+)", fleet.log("edge"))[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}[ {{]", line))


@pytest.mark.slow
def test_a_full_disk_that_is_freed(tmp_path: Path) -> None:
    """Our own broker: nothing it stored is lost, and it is started again once there is room."""
    with plant(tmp_path) as fleet:
        begin(fleet)
        url = fleet.url()
        fleet.wait(lambda: "serving" in fleet.log("edge"), "serving")
        assert fleet.stopped("edge") == 0
        with small_disk(fleet.run / "broker" / "store") as filling:
            fleet.edge("--resume", fleet.run, "--metrics", "127.0.0.1:0")
            join(fleet, url)
            fleet.wait_for("applied", count=3)
            fleet.wait(lambda: metric(fleet, "fedtwin_data_path_ok") == 1, "a way that is well")
            fill(filling)
            fleet.wait(lambda: "the broker's disk is full" in fleet.log("edge"), "a word of the disk")
            fleet.wait(lambda: metric(fleet, "fedtwin_data_path_ok") == 0, "the metric")
            assert metric(fleet, "fedtwin_broker_connected") == 1
            filling.unlink()
            mixes_again(fleet)
            assert "the broker did not store and was started again" in fleet.log("edge")
            fleet.wait(lambda: metric(fleet, "fedtwin_data_path_ok") == 1, "a way that is well again")
            assert metric(fleet, "fedtwin_data_path_repairs_total") >= 1
            assert fleet.stopped("edge") == 0
            fleet.stop()


@pytest.mark.slow
def test_a_full_disk_of_a_broker_that_is_not_ours(tmp_path: Path) -> None:
    """It is said, and it is the exit code; once its owner has started it again the run goes on."""
    with small_disk(tmp_path / "store") as filling, broker_of_others(tmp_path) as broker, plant(tmp_path) as fleet:
        begin(fleet, "--server", broker.url, "--grace-s", 0)
        join(fleet, broker.url)
        fleet.wait_for("applied", count=3)
        fill(filling)
        fleet.wait(lambda: "no upload comes through  reason=the broker does not store" in fleet.log("edge"), "a word")
        filling.unlink()
        broker.restart()
        mixes_again(fleet)
        fill(filling)
        fleet.wait(lambda: fleet.log("edge").count("reason=the broker does not store") > 1, "a word again")
        assert fleet.stopped("edge") == 4
        assert "No upload came through when the run ended: the broker does not store" in fleet.log("edge")


def test_a_fleet_in_which_nothing_works_says_so(tmp_path: Path) -> None:
    """One device fails, one is too far away: every time a warning with the reasons counted."""
    with plant(tmp_path) as fleet:
        begin(
            fleet,
            "--metrics",
            "127.0.0.1:0",
            fleet__devices=2,
            fleet__channels=2,
            live__warn_after_s=1.5,
            live__heartbeat_s=0.3,
        )
        url = fleet.url()
        fleet.device("d0", url, "--command", "false", "--samples", 40)
        fleet.device("d1", url, "--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 100_000)

        def warnings() -> list[str]:
            found = re.findall(
                r"no upload was mixed in for (?:\d+) s although 2 devices are there  reasons=(.*)", fleet.log("edge")
            )
            return [line for line in found if "declined" in line and "given up" in line]

        fleet.wait(lambda: len(warnings()) >= 2, "two warnings")
        assert re.search(r"given up: failed: false ended with 1: no message \(\d+\)", warnings()[-1])
        assert re.search(r"declined: (power|energy)-limit \(\d+\)", warnings()[-1])
        assert metric(fleet, "fedtwin_standstill_seconds") >= 1 and metric(fleet, "fedtwin_standstill_reasons") >= 2
        assert fleet.stopped("edge") == 3, "the way of an upload is well, and nothing came of it"
        assert re.search(r"error: No upload was mixed in: .*given up: failed: false ended with 1", fleet.log("edge"))


def test_a_run_whose_rounds_came_to_nothing(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        begin(fleet, "--rounds", 2, fleet__devices=1, fleet__channels=1, live__heartbeat_s=0.3)
        fleet.device("d0", fleet.url(), "--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 100_000)
        assert fleet.ended("edge") == 3
        assert re.search(r"error: No upload was mixed in: declined: (power|energy)-limit \(\d+\)", fleet.log("edge"))
        log, enough = fleet.log("edge"), r"objective\.max_\w+ = .* too tight, .* would let 90 % of the devices take part"
        assert re.search(rf"error   everybody declines, nothing is trained: {enough}", log), "at once"
        assert re.search(rf"error: No upload was mixed in: .*{enough}", log)
        assert (fleet.run / "summary.json").exists()


def test_a_run_that_waits_for_devices_says_so(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        begin(fleet, fleet__devices=2, fleet__channels=2, live__warn_after_s=1.0, live__heartbeat_s=0.3)
        fleet.device("d0", fleet.url(), "--no-training", "--samples", 40)
        fleet.wait(lambda: "1 devices are there  reasons=the run waits for 2 devices" in fleet.log("edge"), "a warning")


@pytest.mark.slow
def test_rights_from_before_there_were_pulses_and_a_lease(tmp_path: Path) -> None:
    """The run goes on, and it is said that nobody watches it, nor keeps a second edge server away."""
    folder = tmp_path / "fleet"
    provision(folder, run="main", server_names=["127.0.0.1"], devices=["d0"])
    users = folder / "users.conf"
    old = users.read_text(encoding="utf-8")
    for word in ("pulse", "lease", "ledger"):
        old = old.replace(f'"fedtwin.main.{word}", ', "")
    users.write_text(old, encoding="utf-8")
    with plant(tmp_path) as fleet:
        begin(fleet, "--credentials", folder, fleet__devices=1, fleet__channels=1)
        training = ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
        fleet.device("d0", fleet.url(), "--credentials", folder / "devices" / "d0", *training)
        again = "users.conf is old, fedtwin provision DIR --run main writes it anew"
        fleet.wait(lambda: f"whether uploads come through is not watched: {again}" in fleet.log("edge"), "a word")
        assert f"a second edge server would not be kept away: {again}" in fleet.log("edge")
        mixes_again(fleet)
        assert "no upload comes through" not in fleet.log("edge")
        assert fleet.stopped("edge") == 0


def test_a_device_that_is_heard_and_never_joins_is_spoken_of(tmp_path: Path) -> None:
    async def beat(url: str) -> None:
        client = Client()
        await client.connect([url])
        end = time.monotonic() + LIMIT_S
        while "the run waits for 3 devices; heard, but not joined: ghost" not in fleet.log("edge"):
            assert time.monotonic() < end, fleet.log("edge")
            await client.publish("fedtwin.main.beat.ghost", Telemetry().encoded())
            await asyncio.sleep(0.1)
        await client.close()

    with plant(tmp_path) as fleet:
        begin(fleet, live__warn_after_s=1.0, live__heartbeat_s=0.3)
        fleet.wait(lambda: "serving" in fleet.log("edge"), "serving")
        asyncio.run(beat(fleet.url()))


@pytest.mark.slow
def test_our_broker_hangs_when_the_run_is_resumed(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        begin(fleet)
        join(fleet, fleet.url())
        fleet.wait_for("applied", count=3)
        fleet.processes["edge"].kill()
        fleet.processes["edge"].wait()
        pid = broker_pid(fleet)
        with frozen(pid):
            fleet.edge("--resume", fleet.run)
            fleet.wait(lambda: "no upload comes through  reason=the broker is not reached" in fleet.log("edge"), "a word")
            mixes_again(fleet)
        assert broker_pid(fleet) != pid and "the broker did not answer and was started again" in fleet.log("edge")
        assert fleet.stopped("edge") == 0


def test_a_broker_that_never_greets_is_the_exit_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, plant(tmp_path) as fleet:
        begin(fleet, "--server", f"nats://127.0.0.1:{deaf.getsockname()[1]}")
        fleet.wait(lambda: "no upload comes through  reason=the broker is not reached" in fleet.log("edge"), "a word")
        assert fleet.stopped("edge") == 4


@pytest.mark.parametrize("what", ["stream", "consumer"])
def test_settings_at_the_broker_that_were_changed(tmp_path: Path, what: str) -> None:
    """The pulse goes through, and nothing else does."""

    async def only_pulses(url: str) -> None:
        client = Client()
        await client.connect([url])
        js = client.jetstream()
        if what == "stream":
            stream = (await js.stream_info(STREAM)).config
            await js.update_stream(stream, subjects=["fedtwin.main.pulse"])
        else:
            consumer = (await js.consumer_info(STREAM, "edge")).config
            await js.add_consumer(STREAM, consumer, filter_subject="fedtwin.main.pulse")
        await client.close()

    with plant(tmp_path) as fleet:
        begin(fleet)
        join(fleet, fleet.url())
        fleet.wait_for("applied", count=3)
        asyncio.run(only_pulses(fleet.url()))
        fleet.wait(lambda: f"the {what} had other settings" in fleet.log("edge"), "a word")
        mixes_again(fleet)
