"""Which limit keeps a fleet out, and the value that would not."""

import re

import pytest

from fedtwin.live.run import events
from fedtwin.live.views.advice import Advice
from fedtwin.live.wire.protocol import Decline
from tests.live.run.test_limits import QUICK, answered, core_of, join, offer


def advice_after(*needs: tuple[float, float], **settings: object) -> str | None:
    core = core_of(**{"fleet.devices": len(needs), "live.limits_from_fleet": [], **settings})
    advice = Advice(core)
    for number in range(len(needs)):
        join(core, f"d{number}", None)
    for time_s, energy_j in needs:
        advice.happened(answered(core, Decline(reason="compute-energy", time_s=time_s, energy_j=energy_j)))
    return advice.told()


def test_the_binding_limit_and_the_value_for_nine_of_ten() -> None:
    assert advice_after((0.5, 2.0), (0.5, 2.3456)) == (
        "objective.max_energy_j = 1.2 is too tight, 2.35 would let 90 % of the devices take part"
    )
    told = advice_after((0.5, 2.0), (3.0, 1.0))
    assert told is not None and re.fullmatch(
        r"objective.max_time_s = 1 and objective.max_energy_j = 1.2 are too tight, 3 and 2 would let .*", told
    )


def test_the_value_that_is_named_would_have_been_enough() -> None:
    assert advice_after((0.5, 2.0), (0.5, 2.3456), **{"objective.max_energy_j": 2.35}) is None


def test_one_of_many_is_no_reason() -> None:
    assert advice_after(*[(0.5, 1.0)] * 9, (9.0, 9.0)) is None
    assert advice_after(*[(0.5, 1.0)] * 8, (9.0, 9.0), (9.0, 9.0)) is not None


def test_who_says_nothing_of_its_needs_blames_no_limit() -> None:
    core = core_of(**{"live.limits_from_fleet": []})
    advice = Advice(core)
    join(core, "a", None)
    join(core, "b", None)
    advice.happened(answered(core, Decline(reason="busy")))
    assert advice.told() is None


@pytest.mark.parametrize("time_s", [29.0, 31.0])
def test_limits_that_were_measured_are_named_so(time_s: float) -> None:
    core = core_of()
    advice = Advice(core)
    join(core, "a", QUICK.model_copy(update={"time_s": 10.0}))
    join(core, "b", QUICK)
    taken = answered(core, offer(5.0))
    assert isinstance(taken, events.Dispatched)
    advice.happened(taken)
    other = 1 - taken.device
    advice.happened(events.Declined(at_s=1.0, device=other, reason="compute-time", time_s=time_s, energy_j=1.0))
    told = advice.told()
    assert (told is None) == (time_s < 30.0)
    assert told is None or told.startswith("objective.max_time_s (measured) = 30 is too tight, 31 would let 90 %")
