"""A hostile device with a valid certificate, against a real edge server, while honest devices go on training."""

import asyncio
import json
import pickle
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nats.js.errors import APIError
from safetensors.numpy import save

from fedtwin.live.protocol import Failed, Hello, Reading, Task
from tests.live.hostile import ACCEPT, HONEST, QUARANTINE_S, SAMPLES, SUBJECTS, Fleet, Hostile, Log, done_for, marked

Tensors = dict[str, np.ndarray]
Attack = Callable[..., Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        asyncio.run(fleet.goes_on())
        yield fleet


def attack(fleet: Fleet, scene: Attack, hostile: int = 1) -> None:
    """The scene with its hostile devices; honest ones must have been mixed in after it, and nothing of it."""

    async def whole() -> None:
        async with fleet.attacked_by(hostile) as devices:
            await scene(*devices)

    asyncio.run(whole())


def filled(value: float) -> Callable[[Tensors], bytes]:
    def damaged(tensors: Tensors) -> bytes:
        tensors["weights"][7] = value
        return save(tensors)

    return damaged


UPLOADS: dict[str, tuple[str, Callable[[Tensors], bytes]]] = {
    "nan": ("not finite: ", filled(np.nan)),
    "infinite": ("not finite: ", filled(-np.inf)),
    "norm": ("norm: ", filled(200.0)),
    "norm-overflows": ("norm: ", filled(3e38)),
    "shape": ("shape: ", lambda tensors: save({**tensors, "weights": tensors["weights"].reshape(8, 8)})),
    "tensor-missing": ("shape: ", lambda tensors: save({"weights": tensors["weights"]})),
    "tensor-more": ("shape: ", lambda tensors: save({**tensors, "more": tensors["weights"]})),
    "dtype": ("type: ", lambda tensors: save({**tensors, "weights": tensors["weights"].astype(np.float64)})),
    "counter": ("range: a counter", lambda tensors: save({**tensors, "steps": -tensors["steps"] - 1})),
    "truncated": ("not safetensors: ", lambda tensors: save(tensors)[:-9]),
    "empty": ("not safetensors: ", lambda _: b""),
    "pickle": ("not safetensors: ", lambda _: pickle.dumps({"weights": [0.0]})),
    "huge-header": ("not safetensors: ", lambda tensors: b"\xff" * 8 + save(tensors)[8:]),
}


@pytest.mark.parametrize("case", UPLOADS)
def test_an_upload_that_is_not_the_model_is_refused_and_its_device_left_out(fleet: Fleet, case: str) -> None:
    reason, damaged = UPLOADS[case]

    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        body = damaged(marked(model))
        await device.upload(task.token, body)
        await device.result(done_for(task, body))
        await is_over(device, task, reason)

    attack(fleet, scene)


async def is_over(device: Hostile, task: Task, reason: str, what: str = "result") -> None:
    """Refused and quarantined for this reason; the task has ended and the upload was not mixed in."""
    await device.refused(reason, what)
    await device.quarantined(reason)
    (given_up,) = device.fleet.events("given-up", token=task.token)
    assert given_up["status"] == "quarantined" and given_up["reason"].startswith(f"quarantined: {reason}")
    assert given_up["cost"] >= 1.0
    assert not device.fleet.events("applied", token=task.token)


def measured(value: float) -> Reading:
    return Reading(value=value, source="measured")


CLAIMS: dict[str, tuple[str, dict[str, object]]] = {
    "version": ("version: ", {"version": 10**9}),
    "more-samples": ("samples: ", {"samples": SAMPLES + 1}),
    "size": ("size: ", {"model_bytes": 10}),
    "cpu": ("range: cpu_hz", {"cpu_hz": 1e12}),
    "power": ("range: power_w", {"power_w": 1.5}),
    "no-energy": ("range: compute_j", {"compute_j": measured(0.0), "compute_s": measured(100.0)}),
    "absurd-energy": ("range: upload_j", {"upload_j": measured(1e9)}),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_a_claim_no_device_can_make_is_refused_and_its_device_left_out(fleet: Fleet, case: str) -> None:
    reason, changes = CLAIMS[case]

    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        body = save(marked(model))
        await device.upload(task.token, body)
        await device.result(done_for(task, body, **changes))
        await is_over(device, task, reason)

    attack(fleet, scene)


RESULTS: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "nan": ("schema: done.power_w", lambda done: done.update(power_w=float("nan"))),
    "infinite": ("schema: done.cpu_hz", lambda done: done.update(cpu_hz=float("inf"))),
    "negative-time": ("schema: done.compute_s.value", lambda done: done["compute_s"].update(value=-1.0)),
    "unknown-key": ("schema: done.admin", lambda done: done.update(admin=True)),
    "no-samples": ("schema: done.samples", lambda done: done.update(samples=0)),
    "protocol": ("schema: done.protocol", lambda done: done.update(protocol=2)),
}


@pytest.mark.parametrize("case", RESULTS)
def test_a_result_out_of_form_is_refused_and_its_device_left_out(fleet: Fleet, case: str) -> None:
    reason, damage = RESULTS[case]

    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        body = save(marked(model))
        await device.upload(task.token, body)
        done = json.loads(done_for(task, body).encoded())
        damage(done)
        await device.result(json.dumps(done).encode())
        await is_over(device, task, reason)

    attack(fleet, scene)


def test_an_upload_that_is_too_large(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        task, model = await device.take()
        with pytest.raises(APIError, match="message size exceeds maximum allowed"):
            await device.upload(task.token, b"\0" * (len(model) + 65536 + 4097))  # not even the broker takes it
        await device.upload(task.token, b"\0" * (len(model) + 65537))
        await is_over(device, task, "size: ", "upload")

    attack(fleet, scene)


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


@pytest.mark.parametrize("what", ["upload", "result"])
def test_a_token_given_to_an_accomplice(fleet: Fleet, what: str) -> None:
    async def scene(owner: Hostile, accomplice: Hostile) -> None:
        task, model = await owner.take()
        body = save(marked(model))
        await accomplice.result(Failed(token=task.token, reason="not mine"))
        await accomplice.refused("unassigned: ")
        if what == "upload":
            await accomplice.upload(task.token, body)
        else:
            await accomplice.result(done_for(task, body))
        await accomplice.refused("foreign token: ", what)
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


TELEMETRY = {
    b'{"gain":1.5}': "schema: gain",
    b'{"gain":0}': "schema: gain",
    b'{"gain":NaN}': "schema: ",
    b'{"cpu_hz":-1}': "schema: cpu_hz",
    b'{"cpu_hz":1e300}': "schema: cpu_hz",
    b'{"cpu_hz":9e11}': "range: cpu_hz",
    b'{"cpu_hz":Infinity}': "schema: ",
    b'{"samples":1}': "schema: samples",
    b'{"temperature_c":"\\ud800"}': "schema: ",
    b"\xff\xfe": "schema: ",
    b"[" * 100_000: "schema: ",
}


@pytest.mark.parametrize("data", TELEMETRY, ids=lambda data: repr(data[:24]))
def test_absurd_telemetry(fleet: Fleet, data: bytes) -> None:
    async def scene(device: Hostile) -> None:
        await device.beat(data)
        await device.refused(TELEMETRY[data], "telemetry")

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


OFFERS: dict[str, tuple[str, dict[str, object]]] = {
    "time": ("offer: 1.1 s is over max_time_s", {"compute_s": 1.0}),
    "energy": ("offer: 2.01 J is over max_energy_j", {"compute_j": 2.0}),
    "power": ("offer: power_w = 1.5 is over", {"power_w": 1.5}),
    "cpu": ("offer: cpu_hz = 9e+11 is out of range", {"cpu_hz": 9e11}),
    "schema": ("refused: schema: accept.gain", {"gain": 2.0}),
}


@pytest.mark.parametrize("case", OFFERS)
def test_an_offer_over_the_limits_is_a_decline(fleet: Fleet, case: str) -> None:
    reason, changes = OFFERS[case]

    async def scene(device: Hostile) -> None:
        device.answer = ACCEPT.model_copy(update=changes).encoded()

        def declined() -> Log:
            return [event for event in fleet.events("declined", device.name) if event["reason"].startswith(reason)]

        assert not (await fleet.until(declined))[0]["offline"]
        assert not fleet.events("dispatched", device.name)

    attack(fleet, scene)


def test_other_samples_than_announced(fleet: Fleet) -> None:
    async def scene(device: Hostile) -> None:
        welcome = await device.hello(Hello(samples=10**12))
        assert not welcome.accepted and f"{SAMPLES} were announced before" in (welcome.reason or "")
        await device.refused("samples: ", "hello")

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
