"""What a board measures before it joins, and that it begins with that instead of a simulator's numbers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError
from fedtwin.live.device import board
from fedtwin.live.device.calibration import (
    FIRST_BYTES,
    LINK_LONG_ENOUGH_S,
    LONG_ENOUGH_S,
    MOST_BYTES,
    Calibration,
    read_calibration,
    trained_by,
    try_link,
    try_training,
    write_calibration,
)
from fedtwin.live.device.planner import FIRST_DOUBT_S, AgentOptions, Planner
from fedtwin.live.device.trainers import NoTrainer, TrainingError, Update
from fedtwin.live.wire.ports import TransportError

CONFIG = build_config({}, {"fleet.devices": 2, "fleet.channels": 1, "learning.batch_size": 32})
CPU_HZ = 2e9


class Board:
    """Trains in virtual seconds: so many a sample, and the first step takes five more."""

    def __init__(self, seconds_per_sample: float, samples: int = 300) -> None:
        self.now_s, self._per_sample_s, self._samples = 0.0, seconds_per_sample, samples
        self.trained: list[int] = []
        self.breaks = False

    def clock(self) -> float:
        return self.now_s

    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return self._samples

    def trial(self) -> Callable[[int], Update]:
        return lambda samples: self.train_on(b"model", 0, samples)

    def train(self, model: bytes, round_: int) -> Update:
        return self.train_on(model, round_, self._samples)

    def train_on(self, model: bytes, round_: int, samples: int) -> Update:  # noqa: ARG002
        if self.breaks:
            raise TrainingError("no memory")
        self.now_s += samples * self._per_sample_s + (0.0 if self.trained else 5.0)
        self.trained.append(samples)
        return Update(model * 100, None)

    def stop(self) -> None:
        pass


def tried(board_: Board, samples: int = 300) -> Calibration:
    return try_training(board_, CONFIG, samples, CPU_HZ, board_.clock)


def test_seconds_and_cycles_per_sample_without_the_first_step() -> None:
    quick = Board(1e-4)
    found = tried(quick)
    assert found.seconds_per_sample == pytest.approx(1e-4) and found.cycles_per_sample == pytest.approx(2e5)
    assert quick.trained == [32, 32, 128, 300], "more and more, all at the end"
    assert (found.samples, found.cpu_hz, found.update_bytes) == (300, CPU_HZ, 500)


def test_a_slow_board_is_not_kept_longer_than_it_needs() -> None:
    slow = Board(2.0 * LONG_ENOUGH_S / 32)
    assert tried(slow).seconds_per_sample == pytest.approx(2.0 * LONG_ENOUGH_S / 32)
    assert slow.trained == [32, 32]
    assert Board(1.0).trained == [] and tried(Board(1.0, 10), 10).seconds_per_sample == pytest.approx(1.0)


def test_who_cannot_be_tried_out_has_measured_nothing() -> None:
    assert try_training(NoTrainer(50), CONFIG, 50, CPU_HZ, lambda: 0.0) == Calibration()
    broken = Board(1.0)
    broken.breaks = True
    assert tried(broken) == Calibration()


class Link:
    """Bytes take their time; a ping takes a little always."""

    max_payload, reconnects = 1_000_000, 0

    def __init__(self, bytes_per_s: float, *, broken: bool = False) -> None:
        self.now_s, self._per_byte_s, self._broken = 0.0, 1.0 / bytes_per_s, broken
        self.sent: list[int] = []

    async def publish(self, subject: str, data: bytes) -> None:
        assert subject == "trial"
        self.sent.append(len(data))

    async def flush(self, timeout_s: float) -> None:  # noqa: ARG002
        if self._broken:
            raise TransportError("gone")
        self.now_s += 0.001 + self.sent[-1] * self._per_byte_s

    def goodput_bps(self) -> float | None:
        link: Any = self
        return asyncio.run(try_link(link, "trial", lambda: self.now_s))


@pytest.mark.parametrize("bytes_per_s", [1e3, 1e5, 1e6])
def test_the_goodput_of_a_link(bytes_per_s: float) -> None:
    link = Link(bytes_per_s)
    assert link.goodput_bps() == pytest.approx(8.0 * bytes_per_s, rel=0.01)
    assert link.sent[0] == FIRST_BYTES and link.sent[-1] <= MOST_BYTES
    assert link.now_s < max(10.0 * LINK_LONG_ENOUGH_S, 1.1 * FIRST_BYTES / bytes_per_s)


def test_a_link_that_breaks_is_not_measured() -> None:
    assert Link(1e6, broken=True).goodput_bps() is None


MEASURED = Calibration(
    seconds_per_sample=0.01,
    samples=300,
    cpu_hz=CPU_HZ,
    cycles_per_sample=2e7,
    update_bytes=125_000,
    goodput_bps=1e6,
    trained=trained_by(CONFIG),
)


def planner_of(calibration: Calibration | None, time_scale: float = 1.0, **options: Any) -> Planner:
    asked = AgentOptions("d0", [], NoTrainer(300), cpu_hz=CPU_HZ, **options)
    return Planner(asked, CONFIG, 300, board.EnergyMeter(), lambda: 0.0, calibration, time_scale)


def test_a_board_begins_with_what_it_measured() -> None:
    measured = planner_of(MEASURED).measured
    assert measured is not None and measured.time_s == pytest.approx(300 * 0.01 + 1.0)
    compute_j = CONFIG.compute.capacitance * CPU_HZ**3 * 3.0
    assert measured.energy_j == pytest.approx(compute_j + 1.0 * CONFIG.radio.max_power_w)
    half = planner_of(MEASURED, time_scale=0.5).measured
    assert half is not None and half.time_s == pytest.approx(2.0 * (300 * 0.01 + 1.0)), "on the run's clock"


def test_an_emulated_device_says_nothing_of_the_kind() -> None:
    assert planner_of(None, radio="emulated").measured is None
    nothing = planner_of(None).measured
    assert nothing is not None and nothing.given == {}, "a board, which has measured nothing"


def test_the_limits_that_hold_are_told_with_the_question() -> None:
    planner = planner_of(MEASURED)
    offer = planner.look(1)
    assert not offer.plan.feasible, "the simulator's second is too short"
    need = planner.at_full_power(offer)
    planner.keep_to(
        {"max_time_s": 1.01 * (need.compute_s + need.upload_s), "max_energy_j": need.compute_j + 1.01 * need.upload_j}
    )
    assert planner.look(2).plan.feasible
    planner.keep_to({"max_time_s": 0.99 * (need.compute_s + need.upload_s)})
    assert not planner.look(3).plan.feasible


def test_what_was_tried_out_at_a_busy_moment_keeps_no_board_out_for_ever() -> None:
    now_s = [0.0]
    options = AgentOptions("d0", [], NoTrainer(300), cpu_hz=CPU_HZ)
    planner = Planner(options, CONFIG, 300, board.EnergyMeter(), lambda: now_s[0], MEASURED)
    need = planner.at_full_power(planner.look(1))
    planner.keep_to({"max_time_s": (need.compute_s + need.upload_s) / 3.0, "max_energy_j": 100.0})
    assert not planner.look(2).plan.feasible
    now_s[0] += 0.9 * FIRST_DOUBT_S
    assert not planner.look(3).plan.feasible, "not at once"
    now_s[0] += 0.2 * FIRST_DOUBT_S
    assert not planner.look(4).plan.feasible, "twice as good is not enough"
    now_s[0] += 0.1
    planner.look(5)
    now_s[0] += 2.1 * FIRST_DOUBT_S
    offer = planner.look(6)
    assert offer.plan.feasible, "a task will show"
    planner.computed(offer, 300 * 0.01, None)
    assert not planner.look(7).plan.feasible, "what the task shows is taken whole"


def test_what_was_measured_is_had_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "d0.calibration.json"
    write_calibration(path, MEASURED)
    assert read_calibration(path) == MEASURED and MEASURED.fits(CONFIG)
    assert not MEASURED.fits(build_config({}, {"learning.model": "linear"}))
    path.write_text("{}x")
    with pytest.raises(FedtwinError, match="is not a file that fedtwin calibrate has written"):
        read_calibration(path)
    with pytest.raises(FedtwinError, match="cannot be read"):
        read_calibration(tmp_path / "missing")
    with pytest.raises(FedtwinError, match="cannot be written"):
        write_calibration(tmp_path / "missing" / "file", MEASURED)
