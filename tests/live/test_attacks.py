"""What a hostile device with a valid certificate may not say to a real edge server, while honest devices go on training."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nats.js.errors import APIError
from safetensors.numpy import save

from fedtwin.live.wire.protocol import Hello, Own, Reading, Task
from tests.live.hostile import ACCEPT, SAMPLES, Fleet, Hostile, Log, attack, done_for, marked

Tensors = dict[str, np.ndarray]


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
    "counter-overflows": ("range: a counter", lambda tensors: save({**tensors, "steps": tensors["steps"] + 2**62})),
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
        welcome = await device.hello(Hello(samples=10**12))  # would drain any queue, and so be chosen every time
        assert not welcome.accepted and "is over fleet.samples_max" in (welcome.reason or "")
        await device.refused("samples: ", "hello")
        welcome = await device.hello(Hello(samples=SAMPLES, own=Own(max_time_s=100.0)))  # would make every cost small
        assert not welcome.accepted and "own: max_time_s = 100 is over 1, the most in this fleet" in (welcome.reason or "")
        welcome = await device.hello(Hello(samples=SAMPLES, own=Own(max_power_w=0.1)))
        assert not welcome.accepted and "own: {} was announced before" in (welcome.reason or "")

    attack(fleet, scene)
