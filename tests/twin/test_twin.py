import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.errors import FedtwinError
from fedtwin.twin import Twin, new_twin, queue_at, total_queue, twin_from_json, twin_to_json
from fedtwin.twin.update import Offer, accepted, declined, observed, uploaded, with_status

OFFER = Offer(gain=1e-12, cpu_hz=2e9, compute_s=0.2, cost=0.4, time_s=0.5, energy_j=0.3)
SAMPLES = [70, 85, 100]
EVENTS = st.lists(st.tuples(st.sampled_from(["take", "pass", "decline"]), st.integers(0, 2)), max_size=60)


def play(events: list[tuple[str, int]], min_mean_samples: float) -> tuple[Twin, int]:
    """One event a round; whoever takes a round uploads at once."""
    twin = new_twin(SAMPLES, min_mean_samples)
    for round_, (kind, device) in enumerate(events, start=1):
        if kind == "take":
            twin = accepted(twin, device, round_, OFFER, float(round_), counted=True)
            twin = uploaded(observed(twin, device, OFFER.cost, OFFER.time_s, OFFER.energy_j), device, 0.2, round_ + 0.5, 1.5)
        elif kind == "decline":
            twin = declined(twin, device, 1e-15, 1e9, float(round_))
    return twin, len(events) + 1


@given(events=EVENTS, min_mean_samples=st.floats(0, 50))
def test_queues_follow_the_papers_recursion(events: list[tuple[str, int]], min_mean_samples: float) -> None:
    """Q_n(t+1) = max{Q_n(t) + D_min − D_n x_n(t), 0}, by repeated addition."""
    queues = [0.0] * 3
    for kind, chosen in events:
        for n in range(3):
            queues[n] = max(queues[n] + min_mean_samples - (SAMPLES[n] if kind == "take" and n == chosen else 0), 0.0)
    twin, round_ = play(events, min_mean_samples)
    ours = [queue_at(device.queue, device.queue_round, round_, min_mean_samples) for device in twin.devices]
    assert ours == pytest.approx(queues, rel=1e-12, abs=1e-9)
    assert total_queue(twin, round_) == pytest.approx(sum(queues), rel=1e-9, abs=1e-7)


@given(events=EVENTS)
def test_counts_add_up(events: list[tuple[str, int]]) -> None:
    twin, _ = play(events, 1.0)
    for n, device in enumerate(twin.devices):
        assert device.selections == device.observations == events.count(("take", n))
        assert device.declines == events.count(("decline", n))
        assert device.mean_cost == pytest.approx(OFFER.cost if device.observations else 0.0)
    assert twin.model_version == sum(kind == "take" for kind, _ in events)


@given(events=EVENTS, min_mean_samples=st.floats(0, 50))
def test_json_out_and_in_is_the_same_twin(events: list[tuple[str, int]], min_mean_samples: float) -> None:
    twin, _ = play(events, min_mean_samples)
    assert twin_from_json(twin_to_json(twin)) == twin


def test_samples_that_are_announced_with_an_offer_drain_the_queue_and_are_known_from_then_on() -> None:
    twin = declined(new_twin(SAMPLES, 5.0), 0, 1e-12, 1e9, 1.0)
    assert twin.devices[0].samples == (70.0, 0.0, "configured")
    queue = 5.0 * 19
    for round_, told, left, fact in [
        (20, 40, queue + 5.0 - 40, (40.0, 2.5, "measured")),
        (21, 40, queue + 10.0 - 80, (40.0, 2.5, "measured")),
        (22, None, queue + 15.0 - 120, (40.0, 2.5, "measured")),
        (23, 41, 0.0, (41.0, 5.5, "measured")),
    ]:
        twin = accepted(twin, 0, round_, OFFER._replace(samples=told), round_ - 17.5, counted=True)
        device = twin.devices[0]
        assert device.samples == fact and device.queue == max(left, 0.0)
    first = accepted(new_twin(SAMPLES, 5.0), 1, 0, OFFER._replace(samples=99), 0.5, counted=False)
    assert first.devices[1].samples == (99.0, 0.5, "measured") and first.devices[1].queue == 0.0


def test_updates_are_pure() -> None:
    twin = new_twin(SAMPLES, 1.0)
    before = twin_to_json(twin)
    accepted(twin, 1, 1, OFFER, 3.0, counted=True)
    declined(twin, 1, 1e-12, 1e9, 3.0)
    with_status(twin, 2, "offline")
    assert twin_to_json(twin) == before


def test_facts_say_when_and_whence() -> None:
    twin = new_twin(SAMPLES, 1.0)
    assert twin.devices[1].gain is None and twin.devices[1].samples.source == "configured"
    twin = accepted(twin, 1, 1, OFFER, 3.0, counted=True)
    device = twin.devices[1]
    assert device.status == "in-flight" and device.model_version == 0
    assert device.gain == (1e-12, 3.0, "measured") and device.compute_s == (0.2, 3.0, "estimated")
    device = uploaded(twin, 1, 0.25, 4.0, None).devices[1]
    assert device.status == "idle" and device.compute_s == (0.25, 4.0, "measured")


def test_the_first_dispatches_are_not_counted() -> None:
    twin = accepted(new_twin(SAMPLES, 1.0), 0, 0, OFFER, 0.0, counted=False)
    device = twin.devices[0]
    assert (device.selections, device.queue, device.queue_round, device.status) == (0, 0.0, 1, "in-flight")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema_version": 99}', '{"schema_version": 1, "devices": 3, "min_mean_samples": 1}']
)
def test_a_text_that_is_no_twin_is_one_sentence(text: str) -> None:
    with pytest.raises(FedtwinError, match="twin"):
        twin_from_json(text)


def test_json_holds_what_the_docs_say() -> None:
    data = json.loads(twin_to_json(accepted(new_twin(SAMPLES, 1.0), 0, 1, OFFER, 2.0, counted=True)))
    assert data["schema_version"] == 1
    assert data["devices"][0]["gain"] == {"value": 1e-12, "learned_s": 2.0, "source": "measured"}
    assert math.isclose(data["min_mean_samples"], 1.0)
