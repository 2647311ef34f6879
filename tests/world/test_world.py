"""The fleet and its draws follow the distributions of Section V, and nothing but seed, device and round."""

import numpy as np
import pytest
from scipy import stats

from fedtwin.config import Config, load_config
from fedtwin.formulas.rate import path_gain
from fedtwin.world.fleet import largest_min_mean_samples, make_fleet
from fedtwin.world.world import World

MANY = load_config(overrides={"fleet.devices": 4000})


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
    draws = [world.draw(4, round_, 0.0) for round_ in range(8000)]
    device = world.fleet[4]
    assert stats.kstest([draw.gain / device.path_gain for draw in draws], "expon").pvalue > 1e-4
    assert stats.kstest([(draw.cpu_hz - device.cpu_hz_mean) / 2e8 for draw in draws], "norm").pvalue > 1e-4


def test_slow_cpu_draws_are_clipped_at_the_floor() -> None:
    world = World(load_config(overrides={"compute.cpu_hz_std": 1e10}))
    slowest = min(world.draw(0, round_, 0.0).cpu_hz for round_ in range(200))
    assert slowest == 1e8


def test_the_world_is_a_pure_function_of_seed_device_and_round() -> None:
    one, same, other = World(Config()), World(Config()), World(load_config(overrides={"run.seed": 1}))
    forward = [one.draw(device, round_, 0.0) for device in range(5) for round_ in range(50)]
    backward = [same.draw(device, round_, 0.0) for device in reversed(range(5)) for round_ in reversed(range(50))]
    assert forward == backward[::-1]
    assert one.draw(0, 1, 0.0) != other.draw(0, 1, 0.0)
    assert len(set(forward)) == len(forward)


def test_policies_and_objectives_do_not_change_the_world() -> None:
    changed = load_config(overrides={"policy.name": "Sy-fairness", "objective.energy_weight": 0.1, "run.rounds": 5})
    assert World(changed).draw(3, 17, 0.0) == World(Config()).draw(3, 17, 0.0)


def test_largest_min_mean_samples() -> None:
    samples = [device.samples for device in make_fleet(Config())]
    expected = 1 / sum(1 / number for number in samples)
    assert largest_min_mean_samples(Config(), samples) == pytest.approx(expected)
    sync = load_config(overrides={"run.mode": "sync"})
    assert largest_min_mean_samples(sync, samples) == pytest.approx(15 * expected)
