"""The link of a device: emulated as in the simulator, or learned from the real one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.config import Config, build_config
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.formulas.rate import path_gain
from fedtwin.formulas.terms import terms_of
from fedtwin.live.device.emulation import EmulatedRadio
from fedtwin.live.device.radio import LEAST_GAIN, MOST_GAIN, Link, MeasuredRadio
from fedtwin.world.world import World

CONFIG = build_config({}, {"fleet.devices": 5, "fleet.channels": 2, "run.seed": 3})
TERMS = terms_of(CONFIG)


def measured(config: Config = CONFIG, *, full_power: bool = False) -> MeasuredRadio:
    return MeasuredRadio(config, 100.0, full_power=full_power)


def emulated(name: str = "press-1", fleet_device: int | None = None, *, full_power: bool = False) -> EmulatedRadio:
    return EmulatedRadio(CONFIG, name, fleet_device=fleet_device, distance_m=200.0, full_power=full_power)


@pytest.mark.parametrize("device", [0, 4])
def test_device_k_of_the_fleet_has_the_simulators_channel_and_cpu(device: int) -> None:
    world = World(CONFIG)
    radio = emulated(fleet_device=device)
    for round_ in range(20):
        draw, link = world.draw(device, round_, 0.0), radio.look(round_)
        assert (link.gain, link.cpu_hz, link.gain_source) == (draw.gain, draw.cpu_hz, "modelled")


def test_a_device_of_its_own_has_a_place_but_no_emulated_cpu() -> None:
    links = [emulated().look(round_) for round_ in range(2000)]
    assert {link.cpu_hz for link in links} == {None}
    mean = sum(link.gain for link in links) / len(links)
    assert mean == pytest.approx(path_gain(200.0), rel=0.15), "Rayleigh fading has mean 1"
    assert links[:5] == [emulated().look(round_) for round_ in range(5)], "the same every time"
    assert links[0] != emulated("press-2").look(0), "another for another name"


@pytest.mark.parametrize("full_power", [False, True])
def test_an_emulated_link_plans_as_the_simulator_and_takes_that_time(full_power: bool) -> None:
    radio = emulated(fleet_device=1, full_power=full_power)
    link = radio.look(7)
    assert link.cpu_hz is not None
    plan = radio.plan(TERMS, link, link.cpu_hz, 40, 1.0)
    assert plan == (full_power_plan if full_power else optimal_plan)(TERMS, link.gain, link.cpu_hz, 40)
    assert radio.air_s(plan) == plan.upload_s > 0.0


@given(st.floats(1e3, 1e9))
def test_the_gain_is_the_one_that_gives_the_goodput_at_full_power(goodput_bps: float) -> None:
    radio = measured()
    radio.learn(goodput_bps, 1.0)
    link = radio.look(1)
    assert link.gain_source == "measured" and link.cpu_hz is None
    if LEAST_GAIN < link.gain < MOST_GAIN:
        rate = TERMS.bandwidth_hz * math.log2(1.0 + TERMS.max_power_w * link.gain / TERMS.noise_w)
        assert rate == pytest.approx(goodput_bps, rel=1e-6)


@pytest.mark.parametrize(("bits", "seconds"), [(1e15, 1e-9), (1e-9, 1e9), (0.0, 0.0)])
def test_the_gain_is_one_the_protocol_allows(bits: float, seconds: float) -> None:
    radio = measured()
    radio.learn(bits, seconds)
    assert LEAST_GAIN <= radio.look(1).gain <= MOST_GAIN


def test_before_the_first_upload_the_gain_is_assumed_and_says_so() -> None:
    assert measured().look(1) == Link(path_gain(100.0), "modelled", None)


def test_a_planned_upload_takes_what_the_link_has_shown() -> None:
    radio = measured()
    radio.learn(8e6, 2.0)
    radio.learn(8e6, 1.0)
    assert radio.goodput_bps == 6e6, "half of the new, half of what was known"
    plan = radio.plan(TERMS, radio.look(1), 2e9, 40, 1.2e6)
    assert plan.feasible
    assert plan.upload_s == pytest.approx(0.2)
    assert plan.upload_j == pytest.approx(plan.power_w * 0.2)
    assert radio.air_s(plan) == 0.0, "the real link takes its own time"
