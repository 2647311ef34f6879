"""What a device plans, and when it doubts what it has measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedtwin.config import build_config
from fedtwin.formulas.power import REASONS
from fedtwin.live.device import board
from fedtwin.live.device.planner import FIRST_DOUBT_S, MOST_DOUBT_S, AgentOptions, Planner
from fedtwin.live.device.trainers import NoTrainer
from fedtwin.world.world import World

CONFIG = build_config({}, {"fleet.devices": 5, "fleet.channels": 2})
SAMPLES, MODEL_BYTES = 40, 10_000
OUTAGE_S, QUICK_S = 1000.0, 0.001


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made(radio: str = "measured") -> tuple[Planner, Clock]:
    clock = Clock()
    options = AgentOptions("d0", [], NoTrainer(SAMPLES), radio=radio, cpu_hz=1e9)
    return Planner(options, CONFIG, SAMPLES, board.EnergyMeter(), clock), clock


def test_an_emulated_device_keeps_to_the_quantities_in_the_fleets_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text(
        "distance_m,samples,cpu_hz,max_power_w,cycles_per_sample,samples_spread\n50,80,2e9,0.001,1e6,0.5\n50,80,2e9,1.0,5e6,0\n"
    )
    config = build_config({}, {"fleet.file": str(path), "fleet.channels": 1})
    options = AgentOptions("d0", [], NoTrainer(80), radio="emulated", fleet_device=0)
    planner = Planner(options, config, 80, board.EnergyMeter())
    assert planner.own is not None
    assert planner.own.given == {"max_power_w": 0.001, "cycles_per_sample": 1e6, "samples_spread": 0.5}
    offers = [planner.look(round_) for round_ in range(1, 60)]
    assert all(offer.plan.power_w <= 0.001 for offer in offers) and any(offer.plan.power_w == 0.001 for offer in offers)
    world = World(config)
    assert [offer.samples for offer in offers] == [world.draw(0, round_, 0.0).samples for round_ in range(1, 60)]
    assert len({offer.samples for offer in offers}) > 20
    for offer in offers:
        assert offer.plan.compute_s == offer.samples * 1e6 / offer.cpu_hz
    other = Planner(replace(options, fleet_device=1), config, 80, board.EnergyMeter())
    assert other.own is None
    fewer = Planner(options, config, 30, board.EnergyMeter())
    assert {fewer.look(round_).samples for round_ in range(1, 60)} == {30}, "--samples 30"


def test_a_board_says_its_power_and_keeps_to_it() -> None:
    options = AgentOptions("d0", [], NoTrainer(SAMPLES), cpu_hz=1e9, max_power_w=0.02)
    planner = Planner(options, CONFIG, SAMPLES, board.EnergyMeter())
    assert planner.own is not None and planner.own.given == {"max_power_w": 0.02}
    assert planner.look(1).plan.power_w <= 0.02
    assert planner.look(1).samples == SAMPLES


def work(planner: Planner, *, link_s: float = QUICK_S, training_s: float = QUICK_S) -> None:
    planner.computed(planner.look(1), training_s, None)
    planner.uploaded(MODEL_BYTES, link_s)


def reason(planner: Planner) -> str:
    return REASONS[planner.look(1).plan.reason]


def test_a_link_that_kept_the_device_out_is_tried_again() -> None:
    planner, clock = made()
    work(planner, link_s=OUTAGE_S)
    assert reason(planner) in ("energy-limit", "power-limit")
    clock.now_s += 0.9 * FIRST_DOUBT_S
    assert reason(planner) in ("energy-limit", "power-limit"), "not at once"
    clock.now_s += 0.2 * FIRST_DOUBT_S
    offer = planner.look(2)
    assert offer.plan.feasible and offer.link.gain_source == "modelled", "as before the first upload"
    work(planner)
    assert planner.look(3).link.gain_source == "measured"
    assert planner.look(3).plan.upload_s == pytest.approx(QUICK_S), "taken whole, not the mean with the outage"


def test_a_link_that_is_slow_indeed_is_tried_ever_more_seldom() -> None:
    planner, clock = made()
    waits = []
    for _ in range(12):
        work(planner, link_s=OUTAGE_S)
        begun = clock.now_s
        while reason(planner) != "none":
            clock.now_s += 1.0
        waits.append(clock.now_s - begun)
    assert waits[:4] == [FIRST_DOUBT_S, 2 * FIRST_DOUBT_S, 4 * FIRST_DOUBT_S, 8 * FIRST_DOUBT_S]
    assert waits[-1] == MOST_DOUBT_S == max(waits)
    work(planner)
    assert reason(planner) == "none"
    work(planner, link_s=1000 * OUTAGE_S)
    work(planner, link_s=1000 * OUTAGE_S)
    for _ in range(30):  # half of the new, half of what was known
        planner.uploaded(MODEL_BYTES, 1000 * OUTAGE_S)
    begun = clock.now_s
    while reason(planner) != "none":
        clock.now_s += 1.0
    assert clock.now_s - begun == FIRST_DOUBT_S, "once it has worked, it is trusted to work again"


@pytest.mark.parametrize("radio", ["measured", "emulated"])
def test_a_training_that_was_held_up_once_does_not_keep_the_device_out(radio: str) -> None:
    planner, clock = made(radio)
    assert reason(planner) == "none", "round 1 of this device has a fair channel"
    work(planner, training_s=OUTAGE_S)
    assert reason(planner) == "compute-time"
    clock.now_s += FIRST_DOUBT_S
    assert reason(planner) == "none"
    work(planner)
    assert planner.look(1).plan.compute_s == pytest.approx(QUICK_S)


def test_a_fading_channel_is_no_reason_to_doubt_the_training() -> None:
    planner, clock = made("emulated")
    work(planner, training_s=0.2)
    for round_ in range(300):
        clock.now_s += 1000.0
        plan = planner.look(round_).plan
        assert not plan.feasible or plan.compute_s == pytest.approx(0.2)


def test_what_is_configured_is_not_doubted() -> None:
    """Nothing was measured that could be forgotten: the device says why, every time."""
    clock = Clock()
    far = AgentOptions("d0", [], NoTrainer(SAMPLES), distance_m=1e6, cpu_hz=1e9)
    planner = Planner(far, CONFIG, SAMPLES, board.EnergyMeter(), clock)
    for _ in range(5):
        assert reason(planner) in ("energy-limit", "power-limit")
        clock.now_s += MOST_DOUBT_S
