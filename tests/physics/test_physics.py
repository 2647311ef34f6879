import math

import numpy as np
import pytest
from scipy import stats

from fedtwin.config import Config, load_config
from fedtwin.physics.channel import path_gain, upload_energy_j, upload_time_s
from fedtwin.physics.compute import compute_energy_j, compute_time_s
from fedtwin.physics.cost import cost, within
from fedtwin.physics.fleet import largest_min_mean_samples, make_fleet
from fedtwin.physics.terms import terms_of
from fedtwin.physics.world import World

TERMS = terms_of(Config())
MANY = load_config(overrides={"fleet.devices": 4000})


def test_noise_is_in_watts() -> None:
    assert pytest.approx(10**-18.4) == TERMS.noise_w


def test_path_loss_at_one_kilometre_and_its_slope() -> None:
    assert 10 * math.log10(path_gain(1000.0)) == pytest.approx(-128.1)
    assert 10 * math.log10(path_gain(100.0) / path_gain(1000.0)) == pytest.approx(37.6)


def test_upload_time_and_energy_from_the_rate() -> None:
    rate_bps = 1e6 * math.log2(1 + 0.5 * 1e-12 / TERMS.noise_w)
    upload_s = upload_time_s(TERMS, 1e-12, 0.5)
    assert upload_s == pytest.approx(8e6 / rate_bps)
    assert upload_energy_j(0.5, upload_s) == pytest.approx(0.5 * 8e6 / rate_bps)


def test_compute_time_energy_and_cost() -> None:
    assert compute_time_s(TERMS, 2e9, 80) == pytest.approx(80 * 5e6 / 2e9)
    assert compute_energy_j(TERMS, 2e9, 80) == pytest.approx(2e-28 * (80 * 5e6 / 2e9) * 2e9**3)
    assert cost(TERMS, 0.4, 0.6) == pytest.approx(0.5 * 0.4 / 1.0 + 0.5 * 0.6 / 1.2)
    assert within(1.0 + 1e-12, 1.0) and not within(1.0 + 1e-6, 1.0)


def test_devices_are_uniform_by_area_and_in_their_ranges() -> None:
    fleet = make_fleet(MANY)
    area = [(device.distance_m**2 - 100) / (500**2 - 100) for device in fleet]
    assert stats.kstest(area, "uniform").pvalue > 1e-4
    assert stats.kstest([(device.cpu_hz_mean - 1e9) / 2e9 for device in fleet], "uniform").pvalue > 1e-4
    counts = np.bincount([device.samples for device in fleet])[70:]
    assert len(counts) == 31 and stats.chisquare(counts).pvalue > 1e-4
    assert all(device.path_gain == path_gain(device.distance_m) for device in fleet)


def test_a_larger_fleet_begins_with_the_same_devices() -> None:
    assert make_fleet(MANY)[:30] == make_fleet(Config())


def test_fading_is_exponential_and_cpu_normal() -> None:
    world = World(Config())
    draws = [world.draw(4, round_) for round_ in range(8000)]
    device = world.fleet[4]
    assert stats.kstest([draw.gain / device.path_gain for draw in draws], "expon").pvalue > 1e-4
    assert stats.kstest([(draw.cpu_hz - device.cpu_hz_mean) / 2e8 for draw in draws], "norm").pvalue > 1e-4


def test_slow_cpu_draws_are_clipped_at_the_floor() -> None:
    world = World(load_config(overrides={"compute.cpu_hz_std": 1e10}))
    slowest = min(world.draw(0, round_).cpu_hz for round_ in range(200))
    assert slowest == 1e8


def test_the_world_is_a_pure_function_of_seed_device_and_round() -> None:
    one, same, other = World(Config()), World(Config()), World(load_config(overrides={"run.seed": 1}))
    forward = [one.draw(device, round_) for device in range(5) for round_ in range(50)]
    backward = [same.draw(device, round_) for device in reversed(range(5)) for round_ in reversed(range(50))]
    assert forward == backward[::-1]
    assert one.draw(0, 1) != other.draw(0, 1)
    assert len(set(forward)) == len(forward)


def test_policies_and_objectives_do_not_change_the_world() -> None:
    changed = load_config(overrides={"policy.name": "Sy-fairness", "objective.energy_weight": 0.1, "run.rounds": 5})
    assert World(changed).draw(3, 17) == World(Config()).draw(3, 17)


def test_largest_min_mean_samples() -> None:
    samples = [device.samples for device in make_fleet(Config())]
    expected = 1 / sum(1 / number for number in samples)
    assert largest_min_mean_samples(Config(), samples) == pytest.approx(expected)
    sync = load_config(overrides={"run.mode": "sync"})
    assert largest_min_mean_samples(sync, samples) == pytest.approx(15 * expected)
