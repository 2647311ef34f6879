"""Tokens, quarantine, time, certificates, subjects and the broker: what is not a device's, while honest ones go on training."""

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from safetensors.numpy import save

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.provisioning import provision
from fedtwin.live.wire.protocol import Failed, Hello, Reading
from tests.conftest import run_cli
from tests.live.brokers import LIMIT_S, RUN, until
from tests.live.hostile import ACCEPT, HONEST, QUARANTINE_S, SAMPLES, SUBJECTS, Fleet, Hostile, Log, attack, done_for, marked


def test_a_token_is_good_once(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        for body in (model, save(marked(model))):
            await device.upload(task.token, body)
            await device.result(done_for(task, body))
            await device.applied(task)
        await device.refused("duplicate: the task was applied before")
        assert len(fleet.events("applied", token=task.token)) == 1

    attack(fleet, scene)


@pytest.mark.parametrize("what", ["upload", "result", "failure"])
def test_a_token_given_to_an_accomplice(fleet: Fleet, what: str) -> None:
    async def scene(owner: Hostile, accomplice: Hostile) -> None:
        task, model = await owner.take()
        body = save(marked(model))
        if what == "upload":
            await accomplice.upload(task.token, body)
        else:
            failed = Failed(token=task.token, reason="not mine")
            await accomplice.result(done_for(task, body) if what == "result" else failed)
        await accomplice.refused("foreign token: ", "upload" if what == "upload" else "result")
        await accomplice.quarantined("foreign token: ")
        await owner.upload(task.token, model)  # the owner's task is still open
        await owner.result(done_for(task, model))
        await owner.applied(task)

    attack(fleet, scene, 2)


def test_a_token_nobody_was_given(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        body = save(marked(model))
        guessed = task.model_copy(update={"token": "0" * 32})
        await device.upload(guessed.token, body)
        await device.refused("unassigned: ", "upload")
        await device.result(done_for(guessed, body))
        await device.refused("unassigned: ")
        await device.result(Failed(token=guessed.token, reason="whose?"))
        assert not fleet.events("quarantined", device.name)  # a device that comes back after a long time may do this

    attack(fleet, scene)


def test_a_result_without_its_upload(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        await device.result(done_for(task, model))
        assert (await device.refused("missing: "))["token"] == task.token
        (given_up,) = await fleet.until(lambda: fleet.events("given-up", token=task.token))
        assert given_up["cost"] >= 1.0  # it does not look cheap for it

    attack(fleet, scene)


def test_an_object_that_is_not_there(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        await device.result(done_for(task, model, object_name=task.token))
        await device.refused("missing: ")

    attack(fleet, scene)


def test_a_time_far_below_the_servers_clock_is_not_believed(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        await asyncio.sleep(0.7)
        await device.upload(task.token, model)
        short = {key: Reading(value=1e-3, source="modelled") for key in ("compute_s", "upload_s", "compute_j", "upload_j")}
        await device.result(done_for(task, model, **short))
        event = await device.applied(task)
        assert event["believed"] is False and event["reported_s"] == pytest.approx(2e-3) and event["elapsed_s"] >= 0.7
        assert event["compute_s"] + event["upload_s"] == pytest.approx(event["elapsed_s"])
        assert event["upload_j"] == pytest.approx(0.1 * event["upload_s"])  # p T_com, with the time the server believes
        time_s, energy_j = event["elapsed_s"], event["compute_j"] + event["upload_j"]
        assert event["cost"] == pytest.approx(0.5 * time_s / 1.0 + 0.5 * energy_j / 1.2)

    attack(fleet, scene)


def test_a_device_left_out_is_not_asked_and_comes_back_in_time(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        before, model = await device.take()
        await device.hello(Hello(samples=SAMPLES, fresh=True))  # the first task is given up, its token still good for late
        task, _ = await device.take()
        await device.upload(task.token, b"garbage")
        await device.result(done_for(task, b"garbage"))
        event = await device.quarantined("not safetensors: ")
        left_out = fleet.ledger().index(event)
        assert event["until_s"] == pytest.approx(event["at_s"] + QUARANTINE_S)
        device.answer = ACCEPT.encoded()
        for token in (before, task):
            await device.upload(token.token, save(marked(model)))
            await device.result(done_for(token, save(marked(model))))
        await device.refused("quarantined: ")
        await device.refused("duplicate: the task was refused before")
        await device.hello(Hello(samples=SAMPLES, fresh=True))  # saying hello does not help
        (released,) = await fleet.until(lambda: heard_again(device))
        assert released["at_s"] >= event["until_s"]
        log = fleet.ledger()[left_out : fleet.ledger().index(released)]
        number = fleet.number_of(device.name)
        assert not [one for one in log if one["kind"] in ("asked", "dispatched", "status") and one["device"] == number]
        assert len({one["device"] for one in log if one["kind"] == "asked"}) == len(HONEST)  # and they were asked meanwhile
        task, model = await device.take()
        await device.upload(task.token, model)
        await device.result(done_for(task, model))
        await device.applied(task)

    def heard_again(device: Hostile) -> Log:
        return fleet.events("released", device.name)

    attack(fleet, scene)


@pytest.mark.parametrize(("answers_after_s", "reason"), [(60.0, "no answer"), (0.3, "slow: ")])
def test_who_lets_the_edge_server_wait_is_asked_less(fleet: Fleet, answers_after_s: float, reason: str) -> None:
    """A channel is held for it while it is waited for, however often it is heard; and nobody else waits meanwhile."""

    async def scene(device: Hostile) -> None:
        device.answers_after_s = answers_after_s
        asked: list[int] = []
        while not any(asked) or asked[-1]:  # until it is not asked once in a second, although it is heard twenty times
            assert len(asked) < LIMIT_S, asked
            asked.append(await asked_in_a_second(device))
        declined = fleet.events("declined", device.name)
        assert declined[-1]["offline"] and any(event["reason"].startswith(reason) for event in declined)
        log, number = fleet.ledger(), fleet.number_of(device.name)
        lines = [one for one in log if one["kind"] in ("asked", "declined")]
        own = [place for place, one in enumerate(lines) if one["device"] == number]
        questions = [lines[begin + 1 : end] for begin, end in pairwise(own) if lines[begin]["kind"] == "asked"]
        assert any(one["kind"] == "asked" for between in questions for one in between), "others are asked meanwhile"

    async def asked_in_a_second(device: Hostile) -> int:
        before = len(fleet.events("asked", device.name))
        for _ in range(20):
            await device.beat()
            await asyncio.sleep(0.05)
        return len(fleet.events("asked", device.name)) - before

    attack(fleet, scene)


async def is_turned_away(fleet: Fleet, name: str, credentials: Path, broker_says: str) -> None:
    device = Hostile(fleet, name)
    device.folder = credentials
    before = fleet.said("broker").count(broker_says)
    with pytest.raises(FedtwinError, match=r"do not accept each other|cannot be reached"):
        await device.connect()
    assert await until(lambda: fleet.said("broker").count(broker_says) > before), fleet.said("broker")[-2000:]


def test_a_certificate_of_another_authority(fleet: Fleet, tmp_path: Path) -> None:
    async def scene(_: Hostile) -> None:
        await is_turned_away(fleet, HONEST[0], stranger, "certificate signed by unknown authority")

    provision(tmp_path, run=RUN, server_names=[], devices=[HONEST[0]])
    stranger = tmp_path / "devices" / HONEST[0]
    shutil.copy(fleet.credentials / "ca.pem", stranger / "ca.pem")  # it trusts our server, which does not trust it
    attack(fleet, scene)


def test_an_expired_certificate(fleet: Fleet) -> None:
    async def scene(_: Hostile) -> None:
        await is_turned_away(fleet, "expired", fleet.credentials / "devices" / "expired", "certificate has expired")

    attack(fleet, scene)


def test_a_device_that_is_revoked_in_the_middle_of_a_task(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        task, _ = await device.take()
        reconnects = device.client.stats["reconnects"]
        revoked = run_cli("provision", fleet.credentials, "--revoke", device.name)
        assert revoked.returncode == 0, revoked.stderr
        assert await until(lambda: not device.client.is_connected)
        await is_turned_away(fleet, device.name, device.folder, "authentication error")
        (given_up,) = await fleet.until(lambda: fleet.events("given-up", token=task.token))
        assert given_up["status"] == "offline"
        assert not device.client.is_connected and device.client.stats["reconnects"] == reconnects
        assert not fleet.events("asked", device.name, since=fleet.ledger().index(given_up))

    attack(fleet, scene)


def test_the_subjects_of_another(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        stolen: list[Msg] = []

        async def listen(message: Msg) -> None:
            stolen.append(message)

        victim, since = HONEST[0], len(fleet.ledger())
        for subject in (SUBJECTS.task(victim), SUBJECTS.ask(victim), SUBJECTS.result("*"), "fedtwin.>", "_INBOX.edge.>"):
            await device.client.subscribe(subject, cb=listen)
            await denied(device, "Subscription", subject)
        forged = Failed(token="0" * 32, reason="forged").encoded()
        for subject in (SUBJECTS.result(victim), SUBJECTS.upload(victim), SUBJECTS.beat(victim), SUBJECTS.hello(victim)):
            await device.client.publish(subject, forged)
            await denied(device, "Publish", subject)
        await fleet.goes_on()
        assert not stolen and not fleet.events("refused", victim, since=since)

    async def denied(device: Hostile, what: str, subject: str) -> None:
        words = (f"{what} Violation", f"user:{device.name}@", f'"{subject}"')
        assert await until(lambda: any(all(word in line for word in words) for line in fleet.said("broker").splitlines())), (
            words
        )

    attack(fleet, scene)


async def directed(device: Hostile, subject: str, times: int = 1) -> None:
    """The broker's own words, sent to whatever subject the question names for the answer."""
    for _ in range(times):
        await device.client.publish(f"$JS.API.STREAM.INFO.OBJ_{SUBJECTS.models_bucket}", b"", reply=subject)
    await device.client.flush()


def test_the_brokers_words_on_the_subjects_of_another(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        victim = HONEST[0]
        for what, subject in (
            ("result", SUBJECTS.result(victim)),
            ("upload", SUBJECTS.upload(victim)),
            ("telemetry", SUBJECTS.beat(victim)),
            ("hello", SUBJECTS.hello(victim)),
        ):
            await directed(device, subject, 3)
            await fleet.until(lambda what=what: fleet.events("refused", victim, what=what))  # type: ignore[misc]
        for subject in (SUBJECTS.task(victim), SUBJECTS.ask(victim), SUBJECTS.call):
            await directed(device, subject, 3)
        since = len(fleet.ledger())
        await fleet.until(lambda: fleet.events("applied", victim, since=since))
        assert not fleet.events("quarantined", victim) and not fleet.events("quarantined", device.name)

    attack(fleet, scene)


def test_who_is_asked_cannot_tell_the_other_inboxes_of_the_edge_server(fleet: Fleet) -> None:
    """The library counts its inboxes up: one that is seen would give away the one that uploads are delivered to."""

    async def scene(device: Hostile) -> None:
        device.answer = b"{}"
        assert await until(lambda: len(device.inboxes) > 2)
        seen = {part for inbox in device.inboxes for part in inbox.split(".")[2:]}
        assert len(seen) == 1 + len(device.inboxes)
        for common in (12, 8, 4):
            assert len({part[:common] for part in seen}) == len(seen)

    attack(fleet, scene)


def test_the_brokers_words_where_uploads_are_delivered(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        edge = Hostile(fleet, "edge")
        edge.folder = fleet.credentials / "edge"
        client = await edge.connect()
        consumer = await client.jetstream().consumer_info(SUBJECTS.stream, "edge")
        await edge.leave()
        assert consumer.config.deliver_subject is not None  # which a device cannot know; but if it did
        await directed(device, consumer.config.deliver_subject, 3)
        assert await until(lambda: fleet.said("edge").count("the broker's words were directed into an inbox") == 3)

    attack(fleet, scene)


@pytest.mark.parametrize("kind", ["beat", "hello", "upload", "result"])
@pytest.mark.parametrize("header", [b"NATS/1.0", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0\r\n\xff\r\n\r\n", b"\xff" * 20])
def test_headers_that_cannot_be_read(fleet: Fleet, kind: str, header: bytes) -> None:
    """A message whose headers end the edge server's connection would wait at the broker and end the next one too."""

    async def scene(device: Hostile) -> None:
        subject, size = getattr(SUBJECTS, kind)(device.name), len(header)
        await device.client._send_command(f"HPUB {subject} {size} {size + 1}\r\n".encode() + header + b"?\r\n")
        await device.client._flush_pending()
        await device.client.flush()
        await device.refused("unassigned: " if kind == "upload" else "schema: ", "telemetry" if kind == "beat" else kind)

    attack(fleet, scene)


def test_the_agent_says_that_its_credentials_are_another_devices(fleet: Fleet) -> None:
    others = fleet.credentials / "devices" / fleet.next_name()
    done = run_cli(
        *("device", "press-9", "--server", fleet.url, "--credentials", others, "--no-training", "--samples", SAMPLES),
        *("--log-level", "error"),
    )
    assert done.returncode == 2
    said = "error: --credentials: the broker lets them speak for another device or run, not as 'press-9'."
    assert done.stderr.strip().splitlines()[-1] == said
