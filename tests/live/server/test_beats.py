"""Telemetry becomes a part of the run by a line of the ledger: what has changed, at most once a second, and few bytes."""

import random

import pytest

from fedtwin.config import LiveConfig
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.ledger import sealed
from fedtwin.live.server.beats import MOST_FACTS, Beats
from fedtwin.live.wire.protocol import Accept
from tests.live.run.test_core import config_of

MOST_BYTES_AN_HOUR, MOST_BYTES_A_TASK = 50e6, 2000
OFFER = Accept(gain=1.23456789e-9, cpu_hz=2e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01)


def started(devices: int) -> Core:
    core = Core(config_of("cu-ucb", devices, min(devices, 2), 1000, 0))
    for number in range(devices):
        core.apply(events.Joined(at_s=0.0, name=f"d{number}", samples=50, hardware={}, measures=[]))
    core.apply(core.start(0.0))
    return core


def told(core: Core, beats: Beats, at_s: float) -> list[events.Heard]:
    """Before device 0 is asked."""
    event = beats.told(core, question(0), at_s, at_s)
    if event is None:
        return []
    core.apply(event)
    return event.facts


def question(device: int) -> events.Asked:
    return events.Asked(at_s=0.0, round=1, device=device, score=0.0, queue=0.0, total_queue=0.0)


def test_only_what_has_changed_is_told_and_at_most_once_a_second() -> None:
    core, beats = started(3), Beats()
    assert told(core, beats, 1.0) == []
    beats.heard(0, 1e-9, None, 1.1)
    beats.heard(2, None, None, 1.2)
    before = core.state.snapshot()
    assert beats.told(core, question(1), 2.0, 2.0) == events.Told(at_s=2.0, facts=[events.Heard(0, 1e-9, None)])
    assert core.state.snapshot() == before, "it has not happened yet"
    core.apply(events.Told(at_s=2.0, facts=[events.Heard(0, 1e-9, None)]))
    beats.heard(0, 2e-9, None, 2.1)
    beats.heard(0, None, 1e9, 2.2)
    assert told(core, beats, 2.9) == [], "within a second"
    assert told(core, beats, 3.0) == [(0, 2e-9, 1e9)]
    beats.heard(0, 2.00001e-9, 1e9, 3.5)
    assert told(core, beats, 4.5) == [], "the same to four digits"
    gain = core.twin.devices[0].gain
    assert gain is not None and (gain.value, gain.learned_s) == (2e-9, 3.0)


def test_an_answer_is_newer_than_a_beat_before_it_and_exact() -> None:
    core, beats = started(1), Beats()
    beats.heard(0, 5e-9, 1e9, 1.0)
    asked = core.next_ask(2.0)
    assert isinstance(asked, events.Asked)
    core.apply(asked)
    core.apply(core.answered(asked, OFFER, "0" * 32, 2.0))
    assert told(core, beats, 3.0) == []
    beats.heard(0, OFFER.gain, OFFER.cpu_hz, 3.5)
    assert told(core, beats, 4.5) == []
    assert core.twin.devices[0].gain is not None and core.twin.devices[0].gain.value == OFFER.gain


def test_who_is_asked_is_told_of_first_and_then_who_could_be() -> None:
    core, beats = started(3 * MOST_FACTS), Beats()
    for device in range(MOST_FACTS):
        core.apply(events.StatusChanged(at_s=0.0, device=device, status="offline"))
    for device in range(3 * MOST_FACTS):
        beats.heard(device, 1e-9, 1e9, 1.0)
    event = beats.told(core, question(3 * MOST_FACTS - 1), 2.0, 2.0)
    assert event is not None
    assert [fact.device for fact in event.facts] == [3 * MOST_FACTS - 1, *range(MOST_FACTS, 2 * MOST_FACTS - 1)]
    rest = [fact.device for at_s in (3.0, 4.0) for fact in told(core, beats, at_s)]
    assert rest == [0, *range(2 * MOST_FACTS - 1, 3 * MOST_FACTS - 1), *range(1, MOST_FACTS)], "device 0 is asked then"


def test_of_very_many_those_that_waited_longest_are_told_first() -> None:
    core, beats = started(150), Beats()
    for device in range(150):
        beats.heard(device, 1e-9, 1e9, 0.5)
    beats.heard(70, 3e-9, 1e9, 0.8)
    lines = [told(core, beats, at_s) for at_s in (1.0, 2.0, 3.0, 4.0)]
    assert [len(line) for line in lines] == [MOST_FACTS] * 3 + [150 - 3 * MOST_FACTS]
    facts = [fact for line in lines for fact in line]
    assert [fact.device for fact in facts] == list(range(150))
    assert facts[70].gain == 3e-9, "and the last that it said"


@pytest.mark.parametrize(("devices", "tasks_a_second"), [(2000, 1), (30, 1), (8, 50)])
def test_it_is_few_bytes_even_if_all_that_is_told_is_new(devices: int, tasks_a_second: int) -> None:
    """Every device beats as often as is usual, always with another link and another CPU, and there is a question a second."""
    core, beats, chance = started(devices), Beats(), random.Random(3)
    every_s, seconds, written = round(LiveConfig().heartbeat_s), 20, 0
    for second in range(1, seconds + 1):
        for device in range(second % every_s, devices, every_s):
            beats.heard(device, chance.uniform(1e-12, 1e-8), chance.uniform(1e9, 3e9), second - 0.5)
        event = beats.told(core, question(second % every_s), float(second), float(second))
        assert event is not None
        core.apply(event)
        written += len(sealed(event, "0" * 16)[0])
    assert 3600 * written / seconds < MOST_BYTES_AN_HOUR
    assert written / seconds / tasks_a_second < MOST_BYTES_A_TASK
