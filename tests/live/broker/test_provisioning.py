"""Certificates and rights, tried on a real broker: what a device may do, and what it may not."""

import asyncio
import json
import os
import shutil
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from paho.mqtt.enums import CallbackAPIVersion

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.provisioning import fleet_of, provision, reinstate, revoke, runs_of
from fedtwin.live.wire.protocol import Subjects
from tests.conftest import Cli
from tests.live.brokers import RUN, SecureFleet, secure_fleet, until

SUBJECTS = Subjects(RUN)
MODELS = f"OBJ_{SUBJECTS.models_bucket}"


async def heard_by(client: Client, subject: str) -> list[Msg]:
    """The messages on a subject, as they come."""
    messages: list[Msg] = []

    async def listen(message: Msg) -> None:
        messages.append(message)

    await client.subscribe(subject, cb=listen)
    await client.flush()
    return messages


async def prepared(edge: Client) -> None:
    """What the edge server makes before the devices come."""
    stream = edge.jetstream()
    await stream.add_stream(name=SUBJECTS.stream, subjects=[SUBJECTS.upload("*"), SUBJECTS.result("*")])
    await stream.create_key_value(bucket=SUBJECTS.twin_bucket)
    models = await stream.create_object_store(SUBJECTS.models_bucket)
    await models.put("v1", b"m" * 300_000)
    for device in ("press-1", "press-2"):
        await stream.create_object_store(SUBJECTS.uploads_bucket(device))


def test_files_and_who_may_read_them(tmp_path: Path) -> None:
    fleet = provision(tmp_path, run=RUN, server_names=["edge.example", "192.0.2.7"], devices=["a"])
    for folder in ("server", "edge", "evaluator", "devices/a"):
        assert {path.name for path in (tmp_path / folder).iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
        assert stat.S_IMODE((tmp_path / folder / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    assert fleet == json.loads((tmp_path / "fleet.json").read_text()) == fleet_of(tmp_path)
    assert fleet["devices"]["a"]["user"] == f"a@{fleet['devices']['a']['serial']}.fedtwin"
    decoded: dict[str, Any] = ssl._ssl._test_decode_cert(str(tmp_path / "server/cert.pem"))  # type: ignore[attr-defined]
    names = {name for _, name in decoded["subjectAltName"]}
    assert {"edge.example", "192.0.2.7", "localhost", "127.0.0.1"} <= names


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_folders_are_private_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        provision(tmp_path / "fleet", run=RUN, server_names=["one"], devices=["a"])
        for path in (tmp_path / "fleet" / "devices" / "a", tmp_path / "fleet"):
            path.chmod(0o755)  # as they were made before
        provision(tmp_path / "fleet", run=RUN, server_names=["one"], devices=["a", "b"])
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "fleet", *(tmp_path / "fleet").rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.suffix == ".key" or path.name == "key.pem"} == {0o600}


def test_a_fleet_is_extended_and_what_is_valid_stays(tmp_path: Path) -> None:
    first = provision(tmp_path, run=RUN, server_names=["one"], devices=["a"])
    authority = (tmp_path / "ca.pem").read_bytes()
    second = provision(tmp_path, run=RUN, server_names=["two"], devices=["a", "b"])
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert second["devices"]["a"] == first["devices"]["a"] and second["roles"]["edge"] == first["roles"]["edge"]
    assert second["server_names"] == ["one", "two"] and second["roles"]["server"] != first["roles"]["server"]
    later = datetime.now(UTC) + timedelta(days=350)
    third = provision(tmp_path, run=RUN, server_names=[], devices=["a"], _now=later)
    assert third["devices"]["a"]["serial"] != first["devices"]["a"]["serial"]
    assert third["devices"]["b"] == second["devices"]["b"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"devices": ["a.b"]}, "device 'a.b' is not a name"),
        ({"devices": ["edge"]}, "device 'edge' has the name of a role"),
        ({"run": "a b"}, "run 'a b' is not a name"),
        ({"server_names": ["a b"]}, "server name 'a b' is neither"),
        ({"days": 0}, "days 0 is not above 0"),
    ],
)
def test_bad_input(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    provision(tmp_path, run=RUN, server_names=[], devices=[])
    with pytest.raises(FedtwinError, match=sentence):
        provision(tmp_path, **{"run": RUN, "server_names": [], "devices": [], **settings})


def test_a_fleet_of_several_runs_has_the_rights_of_all_of_them(tmp_path: Path) -> None:
    provision(tmp_path, run="main", server_names=[], devices=["press-1"])
    before = json.loads((tmp_path / "fleet.json").read_text(encoding="utf-8"))["devices"]["press-1"]
    fleet = provision(tmp_path, run="second", server_names=[], devices=["press-1"])
    assert runs_of(fleet) == ["main", "second"] and fleet["devices"]["press-1"] == before, "the same certificate"
    users = (tmp_path / "users.conf").read_text(encoding="utf-8")
    device = next(line for line in users.splitlines() if '"press-1@' in line)
    for run in ("main", "second"):
        assert f"fedtwin.{run}.upload.press-1" in device and f"fedtwin.{run}.task.press-1" in device
        assert f'"fedtwin.{run}.>"' in next(line for line in users.splitlines() if '"edge@' in line)
    assert "fedtwin.main.upload.press-2" not in device


def test_everybody_can_do_their_work(tmp_path: Path) -> None:
    async def scene(fleet: SecureFleet) -> None:
        async with fleet.clients("edge", "press-1", "evaluator") as (edge, device, evaluator):
            await prepared(edge)
            own, shared = device.jetstream(), edge.jetstream()
            await own.publish(SUBJECTS.upload("press-1"), b"model")
            uploads = await own.object_store(SUBJECTS.uploads_bucket("press-1"))
            for body in (b"x" * 300_000, b"y" * 300_000):
                await uploads.put("update", body)
            there = await shared.object_store(SUBJECTS.uploads_bucket("press-1"))
            assert (await there.get("update")).data == b"y" * 300_000
            await there.delete("update")
            for reader in (own, evaluator.jetstream()):
                info = await (await reader.object_store(SUBJECTS.models_bucket)).get_info("v1")
                subject, sequence, body = f"$O.{SUBJECTS.models_bucket}.C.{info.nuid}", 1, b""
                for _ in range(info.chunks or 0):
                    part = await reader.get_msg(MODELS, seq=sequence, subject=subject, direct=True, next=True)
                    body, sequence = body + (part.data or b""), (part.seq or 0) + 1
                assert body == b"m" * 300_000
            twins = await shared.key_value(SUBJECTS.twin_bucket)
            await twins.put("press-1", b"{}")
            assert (await twins.get("press-1")).value == b"{}"
            pulled = await shared.pull_subscribe(SUBJECTS.upload("*"), durable="edge", stream=SUBJECTS.stream)
            (message,) = await pulled.fetch(1, timeout=2)
            await message.ack_sync()
            for subject, answerer in ((SUBJECTS.ask("press-1"), device), (SUBJECTS.evaluate, evaluator)):

                async def answer(message: Msg) -> None:
                    await message.respond(b"yes")

                await answerer.subscribe(subject, cb=answer)
                assert await answered(edge, subject) == b"yes"
            assert not any(client.last_error for client in (edge, device, evaluator))

    with secure_fleet(tmp_path) as fleet:
        asyncio.run(scene(fleet))


async def answered(client: Client, subject: str) -> bytes:
    """The library's flush does not prove that a subscription is known to the server: asked until somebody is there."""
    for _ in range(40):
        try:
            return (await client.request(subject, b"?", timeout=2)).data
        except NoRespondersError:
            await asyncio.sleep(0.05)
    raise AssertionError(f"nobody answers {subject}")


def refused(caplog: pytest.LogCaptureFixture, subject: str) -> bool:
    return any(f'violation for publish to "{subject.lower()}"' in record.message for record in caplog.records)


def test_nobody_speaks_or_listens_for_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(fleet: SecureFleet) -> None:
        async with fleet.clients("edge", "press-1", "press-2", "evaluator") as (edge, one, two, evaluator):
            await prepared(edge)
            heard, tasks = await heard_by(edge, "fedtwin.main.>"), await heard_by(two, SUBJECTS.task("press-2"))
            foreign = (SUBJECTS.task("press-2"), SUBJECTS.result("*"), "fedtwin.>", "_INBOX.press-2.>", "_INBOX.>", "$O.>")
            stolen = [await heard_by(one, subject) for subject in foreign]
            for subject in (
                *(SUBJECTS.result("press-2"), SUBJECTS.upload("press-2"), SUBJECTS.beat("press-2"), SUBJECTS.task("press-2")),
                *(
                    SUBJECTS.call,
                    SUBJECTS.evaluate,
                    f"$O.{SUBJECTS.uploads_bucket('press-2')}.M.x",
                    f"$O.{SUBJECTS.models_bucket}.M.x",
                ),
                *(
                    f"$KV.{SUBJECTS.twin_bucket}.press-1",
                    "_INBOX.edge.x",
                    "_INBOX.press-2.x",  # where the answer to its hello comes, and code with it
                    "$SYS.REQ.SERVER.PING",
                    f"$JS.API.STREAM.DELETE.{MODELS}",
                ),
                f"$JS.API.CONSUMER.CREATE.{MODELS}",
            ):
                await one.publish(subject, b"forged")
                await one.flush()
                assert await until(lambda subject=subject: refused(caplog, subject)), subject  # type: ignore[misc]
            await edge.publish(SUBJECTS.result("press-2"), b"forged")  # not even the edge server speaks for a device
            await evaluator.publish(SUBJECTS.task("press-2"), b"forged")
            await edge.publish(SUBJECTS.task("press-2"), b"real")
            for client in (edge, evaluator):
                await client.flush()
            assert await until(lambda: len(tasks) == 1 and len(heard) == 1)
            assert [message.data for message in tasks] == [b"real"] and not any(stolen)

    with secure_fleet(tmp_path) as fleet:
        asyncio.run(scene(fleet))


def test_no_device_makes_the_broker_send_its_bytes_to_another(tmp_path: Path) -> None:
    """The broker answers to whatever subject a message names; so nothing that a device may call answers with its own bytes."""

    async def scene(fleet: SecureFleet) -> None:
        async with fleet.clients("edge", "press-1", "press-2") as (edge, one, two):
            await prepared(edge)
            tasks, bucket = await heard_by(two, SUBJECTS.task("press-2")), SUBJECTS.uploads_bucket("press-1")
            await one.jetstream().publish(f"$O.{bucket}.C.x", b"forged")
            for call, body in (
                (f"$JS.API.DIRECT.GET.OBJ_{bucket}", b'{"seq":1}'),
                (f"$JS.API.DIRECT.GET.OBJ_{bucket}.$O.{bucket}.C.x", b""),
                (f"$JS.API.STREAM.MSG.GET.OBJ_{bucket}", b'{"seq":1}'),
            ):
                await one.publish(call, body, reply=SUBJECTS.task("press-2"))
            await one.flush()
            assert await until(lambda: len(tasks) > 0)  # the last call is allowed, and answers in the broker's own words
            await asyncio.sleep(0.2)
            assert len(tasks) == 1 and tasks[0].data.startswith(b'{"type":"io.nats.jetstream.api')

    with secure_fleet(tmp_path) as fleet:
        asyncio.run(scene(fleet))


def test_a_revoked_device_is_cut_off_and_its_old_certificate_stays_worthless(tmp_path: Path) -> None:
    async def scene(fleet: SecureFleet) -> None:
        async with fleet.clients("press-1", "press-2") as (gone, other):
            await cut_off(fleet, gone, other)

    async def cut_off(fleet: SecureFleet, gone: Client, other: Client) -> None:
        shutil.copytree(fleet.credentials("press-1"), tmp_path / "stolen")
        assert revoke(fleet.folder, "press-1")
        assert await until(lambda: not gone.is_connected)
        with pytest.raises(FedtwinError, match="Authorization Violation"):
            await fleet.connect("press-1")
        assert other.is_connected and other.stats["reconnects"] == 0
        provision(fleet.folder, run=RUN, server_names=[], devices=["press-1"])
        log = fleet.broker.folder / "nats.log"
        assert await until(lambda: log.read_text().count("Reloaded server configuration") == 2)
        async with fleet.clients("press-1"):
            pass
        with pytest.raises(FedtwinError, match="Authorization Violation"):
            await fleet.connect("press-1", tmp_path / "stolen")
        await asyncio.sleep(0.5)
        assert not gone.is_connected and gone.stats["reconnects"] == 0

    with secure_fleet(tmp_path) as fleet:
        asyncio.run(scene(fleet))


def test_revoking_who_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"has no fleet\.json"):
        revoke(tmp_path, "a")
    provision(tmp_path, run=RUN, server_names=[], devices=["a"])
    assert not revoke(tmp_path, "a")  # no broker runs
    with pytest.raises(FedtwinError, match=r"device 'b' is not in .*: there are a"):
        revoke(tmp_path, "b")


@contextmanager
def mqtt_client(fleet: SecureFleet, device: str, **will: Any) -> Iterator[mqtt.Client]:
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    folder = fleet.credentials(device)
    client.tls_set(str(folder / "ca.pem"), str(folder / "cert.pem"), str(folder / "key.pem"))
    if will:
        client.will_set(**will)
    client.connect("127.0.0.1", fleet.mqtt_port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def lost_connection(client: mqtt.Client) -> None:
    client.loop_stop()
    socket = client.socket()
    assert socket is not None
    socket.shutdown(2)  # type: ignore[attr-defined]


def test_mqtt_devices_speak_under_their_own_name_only(tmp_path: Path) -> None:
    async def scene(fleet: SecureFleet) -> None:
        async with fleet.clients("edge") as (edge,):
            await beats(fleet, await heard_by(edge, "fedtwin.main.beat.*"))

    async def beats(fleet: SecureFleet, heard: list[Msg]) -> None:
        with mqtt_client(fleet, "edge") as client:
            assert not await until(client.is_connected, 0.5)
        with mqtt_client(fleet, "press-1") as client:
            assert await until(client.is_connected)
            for quality in (0, 1):
                client.publish("fedtwin/main/beat/press-1", b"own", qos=quality)
                assert await until(lambda quality=quality: len(heard) == quality + 1)  # type: ignore[misc]
            for quality in (0, 1):
                client.publish("fedtwin/main/beat/press-2", b"forged", qos=quality)
            client.publish("fedtwin/main/beat/press-1", b"own", qos=1)
            assert await until(lambda: len(heard) == 3)
        with mqtt_client(fleet, "press-1", topic="fedtwin/main/beat/press-2", payload=b"forged") as client:
            assert await until(client.is_connected)
            lost_connection(client)  # which is when a will is spoken
            await asyncio.sleep(0.3)
        assert {message.subject for message in heard} == {SUBJECTS.beat("press-1")}
        assert {message.data for message in heard} == {b"own"} and len(heard) == 3

    with secure_fleet(tmp_path) as fleet:
        asyncio.run(scene(fleet))


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    made = cli("provision", "fleet", "--server-name", "edge.example", "--device", "press-1", "--device", "press-2")
    assert made.returncode == 0 and "2 devices" in made.stdout, made.stderr
    assert (tmp_path / "fleet/devices/press-2/key.pem").exists()
    assert cli("provision", "fleet", "--revoke", "press-1").returncode == 0
    listed = cli("provision", "fleet")
    rows = {line.split()[0]: line.split()[-1] for line in listed.stdout.splitlines() if line.strip().startswith("press")}
    assert rows == {"press-1": "yes", "press-2": "no"}
    assert cli("provision", "fleet", "--revoke", "press-9").returncode == 2
    both = cli("provision", "fleet", "--revoke", "press-1", "--device", "press-3")
    assert both.returncode == 2 and both.stderr.startswith("error: --revoke")


def test_what_the_edge_server_cut_is_given_back_and_what_a_person_revoked_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    user = provision(folder, run="main", server_names=[], devices=["a", "b"])["devices"]["a"]["user"]
    revoke(folder, "a", cut=True)
    assert fleet_of(folder)["devices"]["a"]["revoked"] and user not in (folder / "users.conf").read_text()
    assert reinstate(folder, "a") and not reinstate(folder, "a") and not reinstate(folder, "nobody")
    assert fleet_of(folder)["devices"]["a"]["user"] == user and user in (folder / "users.conf").read_text()
    for first, then in ((True, False), (False, True)):
        revoke(folder, "b", cut=first)
        revoke(folder, "b", cut=then)
        with pytest.raises(FedtwinError, match="was revoked by a person: provision it anew"):
            reinstate(folder, "b")
        provision(folder, run="main", server_names=[], devices=["b"])
    assert not fleet_of(folder)["devices"]["b"]["revoked"] and not reinstate(folder, "b")
