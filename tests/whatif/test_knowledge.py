"""What is drawn of a device is as uncertain as what was heard of it leaves it, and never what nobody has heard."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedtwin import FedtwinError, whatif
from fedtwin.runs.rows import Answers
from fedtwin.whatif.heard import heard_of, spreads_of
from fedtwin.whatif.knowledge import Knowledge
from tests.whatif.runs import played

Floats = NDArray[np.float64]


def table(device: Any, gain: Floats, cpu_hz: Floats, **more: Any) -> Answers:
    count = len(gain)
    nothing, no = np.zeros(count), np.zeros(count, bool)
    columns: dict[str, Any] = dict.fromkeys(Answers.__dataclass_fields__, nothing)
    columns |= {"round": np.arange(count), "device": np.asarray(device), "gain": gain, "cpu_hz": cpu_hz}
    return Answers(**{**columns, "samples": np.full(count, 80), "declined": no, "silent": no, **more})


class Truth:
    """A fleet that is drawn, and what is heard of it: of device n as often as ``counts`` say."""

    def __init__(self, seed: int, counts: list[int], shape: float = 1.0) -> None:
        random = np.random.default_rng(seed)
        distance_km = np.sqrt(random.uniform(0.0004, 0.25, len(counts)))
        self.path_gain = 10.0 ** (-(128.1 + 37.6 * np.log10(distance_km)) / 10.0)
        self.cpu_hz = random.uniform(1e9, 3e9, len(counts))
        device = np.repeat(np.arange(len(counts)), counts)
        gain = self.path_gain[device] * random.gamma(shape, 1.0 / shape, len(device))
        self.heard = heard_of(table(device, gain, random.normal(self.cpu_hz[device], 2e8)), len(counts))


def test_a_device_lies_where_it_is_believed_to_lie_in_nine_cases_of_ten() -> None:
    """Mean gain and mean frequency of 30 devices in 30 fleets, heard never to nine times."""
    inside, cases = np.zeros((2, 4)), np.zeros(4)
    for seed in range(30):
        counts = [(0, 1, 3, 9)[n % 4] for n in range(32)]
        truth = Truth(seed, counts)
        knowledge, random = Knowledge(truth.heard), np.random.default_rng(seed)
        drawn = [knowledge.sample(random) for _ in range(120)]
        for k, (found, true) in enumerate(
            [
                (np.array([one.path_gain for one in drawn]), truth.path_gain),
                (np.array([one.cpu_hz_mean for one in drawn]), truth.cpu_hz),
            ]
        ):
            low, high = np.quantile(found, [0.05, 0.95], axis=0)
            hit = (low <= true) & (true <= high)
            inside[k] += [hit[n::4].sum() for n in range(4)]
        cases += 8
    shares = inside / cases
    assert (shares > 0.84).all() and (shares < 0.97).all(), shares


@pytest.mark.parametrize("shape", [0.6, 1.0, 4.0, 200.0])
def test_how_deep_links_fade_is_learned(shape: float) -> None:
    knowledge = Knowledge(Truth(1, [25] * 20, shape).heard)
    random = np.random.default_rng(0)
    drawn = [knowledge.sample(random).shape for _ in range(200)]
    assert min(drawn) < shape < max(drawn)
    assert abs(np.log(knowledge.shape / shape)) < 0.25


def test_more_is_known_of_who_is_heard_more() -> None:
    knowledge, random = Knowledge(Truth(2, [0, 1, 4, 16, 64] * 6).heard, added=1), np.random.default_rng(0)
    drawn = [knowledge.sample(random) for _ in range(400)]
    spread = np.std([np.log(one.path_gain) for one in drawn], axis=0)
    of_cpu = np.std([one.cpu_hz_mean for one in drawn], axis=0)
    for n in range(4):
        assert spread[n:30:5].mean() > 1.4 * spread[n + 1 : 30 : 5].mean()
        assert of_cpu[n:30:5].mean() > 1.4 * of_cpu[n + 1 : 30 : 5].mean()
    assert spread[30] > 1.4 * spread[1] and of_cpu[30] > 1.4 * of_cpu[1], "of a new one as little as of one never heard"


def test_what_never_changed_stays_as_it_is() -> None:
    device = np.repeat(np.arange(4), 30)
    gain, cpu_hz = np.array([1e-9, 2e-9, 3e-10, 5e-9]), np.array([1e9, 2e9, 2.5e9, 1.5e9])
    sampled = Knowledge(heard_of(table(device, gain[device], cpu_hz[device]), 4)).sample(np.random.default_rng(1))
    assert sampled.shape > 1e4 and sampled.cpu_hz_std == 0.0
    assert np.allclose(sampled.path_gain, gain, rtol=0.01) and np.allclose(sampled.cpu_hz_mean, cpu_hz, rtol=1e-9)


@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any),
    shape=st.floats(0.1, 1e5),
    scale=st.floats(1e-30, 1e30),
    seed=st.integers(0, 2**32),
)
def test_whatever_was_heard_a_world_can_be_drawn(counts: list[int], shape: float, scale: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    device = np.repeat(np.arange(len(counts)), counts)
    gain = np.clip(scale * random.gamma(shape, 1.0 / shape, len(device)), 1e-40, 1e40)
    heard = heard_of(table(device, gain, random.uniform(1e8, 1e10, len(device))), len(counts))
    knowledge = Knowledge(heard, added=2)
    for _ in range(5):
        sampled = knowledge.sample(random)
        for column in (sampled.path_gain, sampled.cpu_hz_mean):
            assert len(column) == len(counts) + 2 and np.isfinite(column).all() and (column > 0.0).all()
        assert 0.05 <= sampled.shape <= 1e6 and sampled.cpu_hz_std >= 0.0


def test_who_is_there_is_the_same_beside_new_ones() -> None:
    heard = Truth(3, [2] * 9).heard
    alone, beside = (Knowledge(heard, added).sample(np.random.default_rng(5)) for added in (0, 4))
    assert np.array_equal(alone.path_gain, beside.path_gain[:9]) and np.array_equal(alone.cpu_hz_mean, beside.cpu_hz_mean[:9])
    assert alone[2:] == beside[2:] and len(beside.path_gain) == 13


def test_nothing_heard_is_one_sentence(tmp_path: Path) -> None:
    run = played(tmp_path / "run", run__mode="sync")
    with pytest.raises(FedtwinError, match=r"Nothing has been heard of any device by then: fork at a later round"):
        whatif(run, at=1, rounds=5, worlds=2)


def test_the_truth_is_not_looked_at(tmp_path: Path) -> None:
    """Neither devices, nor world, nor what is written of a device that did not answer."""
    run = played(tmp_path / "run", run__rounds=60)
    usual = whatif(run, at=40, rounds=20, worlds=4)
    for name in ("path_gain", "cpu_hz_mean", "distance_m"):
        place = run.devices.column_names.index(name)
        hidden = run.devices.set_column(place, run.devices.field(place), pa.array([np.nan] * run.devices.num_rows))
        run.__dict__["devices"] = hidden
    config, nowhere = run.config, {"cpu_hz_min": 1.0, "cpu_hz_max": 2.0, "cpu_hz_std": 5e9, "cpu_hz_floor": 1.0}
    run.__dict__["config"] = config.model_copy(
        update={
            "world": config.world.model_copy(update={"channel": "jakes", "load": "nobody:KNOWS"}),
            "compute": config.compute.model_copy(update=nowhere),
            "fleet": config.fleet.model_copy(update={"radius_m": 1e9}),
        }
    )
    assert whatif(run, at=40, rounds=20, worlds=4) == usual


def test_what_a_silent_device_met_was_heard_by_nobody() -> None:
    device, silent = np.array([0, 0, 1, 1]), np.array([True, False, True, False])
    gain, cpu_hz = np.array([777.0, 1.0, 777.0, 2.0]), np.array([7e12, 1e9, 7e12, 2e9])
    heard = heard_of(table(device, gain, cpu_hz, silent=silent, declined=silent), 2)
    assert heard.counts.tolist() == [1, 1] and heard.gain_sums.tolist() == [1.0, 2.0] and heard.cpu_sums.tolist() == [1e9, 2e9]
    assert (heard.asked, heard.silent) == (3, 1), "a decline of the first dispatches is told to nobody"


def test_links_with_memory_are_found_out() -> None:
    random = np.random.default_rng(0)
    noise = random.standard_normal(2000)
    for k in range(1, 2000):
        noise[k] += 0.8 * noise[k - 1]
    heard = heard_of(table(np.zeros(2000, int), np.exp(noise), np.full(2000, 1e9)), 1)
    assert heard.lag_correlation is not None and heard.lag_correlation > 0.7
    free = heard_of(table(np.zeros(2000, int), np.exp(random.standard_normal(2000)), np.full(2000, 1e9)), 1)
    assert free.lag_correlation is not None and abs(free.lag_correlation) < 0.1


def test_samples_that_stray_are_seen_to() -> None:
    random = np.random.default_rng(0)
    device = np.repeat([0, 1, 2], [40, 40, 1])
    samples = np.where(device == 0, 80, np.where(device == 1, random.integers(60, 101, 81), 80))
    rows = table(device, np.ones(81), np.full(81, 1e9), samples=samples)
    spreads = spreads_of(rows, np.array([80.0, 80.0, 80.0]))
    assert spreads[0] == 0.0 and 0.2 < spreads[1] < 0.28 and spreads[2] > 0.0
