"""The closed form against bisection in extended precision, and against Lambert's function in mpmath."""

import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import (
    BINDINGS,
    REASONS,
    Plan,
    efficiency_at_energy,
    efficiency_at_optimum,
    full_power_plan,
    no_answer,
    optimal_plan,
    plan_power,
)
from fedtwin.formulas.terms import Terms

CASES = 120_000
Long = NDArray[np.longdouble]


def random_cases(count: int) -> dict[str, NDArray[np.float64]]:
    """Update size, limits, radio, CPU and weights over wide ranges; SNR at full power from 1e-3 to 1e15."""
    rng = np.random.default_rng(20)

    def ratio(low: float, high: float) -> NDArray[np.float64]:
        return np.exp(rng.uniform(math.log(low), math.log(high), count))

    noise_w, max_power_w = ratio(1e-22, 1e-12), ratio(1e-3, 30)
    weight = rng.choice([0, 1, 2, 3], count, p=[0.1, 0.1, 0.6, 0.2])
    return {
        "bandwidth_hz": ratio(1e4, 1e8),
        "noise_w": noise_w,
        "max_power_w": max_power_w,
        "update_bits": ratio(1e3, 1e9),
        "cycles_per_sample": ratio(1e5, 3e7),
        "capacitance": ratio(1e-29, 1e-27),
        "energy_weight": np.select(
            [weight == 0, weight == 1, weight == 2], [np.zeros(count), np.ones(count), rng.uniform(size=count)], ratio(1e-12, 1)
        ),
        "max_time_s": ratio(0.1, 30),
        "max_energy_j": ratio(0.03, 100),
        "gain": ratio(1e-3, 1e15) * noise_w / max_power_w,
        "cpu_hz": ratio(3e8, 4e9),
        "samples": rng.integers(1, 200, count).astype(float),
    }


def bisect(rising: Any, low: Long, high: Long) -> Long:
    """Root of a rising function of ln p, element by element, in extended precision."""
    for _ in range(80):
        middle = (low + high) / 2
        above = rising(np.exp(middle)) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.exp((low + high) / 2)


def reference(cases: dict[str, NDArray[np.float64]]) -> tuple[Long, Long, Long]:
    """(optimal power, least power, largest power) from the definitions of time, energy and cost alone."""
    case = {name: values.astype(np.longdouble) for name, values in cases.items()}
    work = case["samples"] * case["cycles_per_sample"]
    time_left = case["max_time_s"] - work / case["cpu_hz"]
    energy_left = case["max_energy_j"] - case["capacitance"] * work * case["cpu_hz"] ** 2
    per_watt = case["gain"] / case["noise_w"]
    nats = case["update_bits"] * np.log(np.longdouble(2)) / case["bandwidth_hz"]
    low, high = np.full_like(nats, -150), np.full_like(nats, 150)

    least = bisect(lambda p: time_left - nats / np.log1p(p * per_watt), low, high)
    least = np.where(time_left > 0, least, np.inf)
    spending = bisect(lambda p: p * nats / np.log1p(p * per_watt) - energy_left, low, high)
    faintest = nats / per_watt
    largest = np.minimum(case["max_power_w"], np.where(energy_left > faintest, spending, 0))

    theta_t = (1 - case["energy_weight"]) / case["max_time_s"]
    theta_e = case["energy_weight"] / case["max_energy_j"]

    def slope(p: Long) -> Long:
        """Sign of the derivative of (θ_t + θ_e p) / ln(1 + p g) in p."""
        snr = p * per_watt
        small = snr < 1e-6
        drift = np.where(small, p * snr * (np.longdouble(0.5) - snr / 6), np.log1p(snr) * (1 + snr) / per_watt - p)
        return theta_e * drift - theta_t

    best = np.clip(bisect(slope, low, high), least, np.maximum(largest, least))
    best = np.where(case["energy_weight"] == 0, largest, best)
    return np.where(case["energy_weight"] == 1, least, best), least, largest


@pytest.fixture(scope="module")
def cases() -> dict[str, NDArray[np.float64]]:
    return random_cases(CASES)


@pytest.fixture(scope="module")
def plans(cases: dict[str, NDArray[np.float64]]) -> list[Plan]:
    return [optimal_plan(Terms(*map(float, row[:9])), *map(float, row[9:])) for row in zip(*cases.values(), strict=True)]


def test_power_equals_an_independent_root_to_1e_9(cases: dict[str, NDArray[np.float64]], plans: list[Plan]) -> None:
    best, least, largest = reference(cases)
    feasible = np.array([plan.feasible for plan in plans])
    on_the_edge = np.abs(largest / least - 1) < 1e-9
    assert np.array_equal(feasible | on_the_edge, (least <= largest) | on_the_edge)
    assert 0.4 < feasible.mean() < 0.6, "half of the cases should be feasible"

    power = np.array([plan.power_w for plan in plans])
    assert np.max(np.abs(power[feasible] / best[feasible] - 1)) < 1e-9
    assert np.all(power[~feasible] == 0)
    for name, expected in (("min_power_w", least), ("max_power_w", largest)):
        ours = np.array([getattr(plan, name) for plan in plans])
        assert np.max(np.abs(ours[feasible] / expected[feasible] - 1)) < 1e-9, name


def test_every_case_of_the_closed_form_and_every_reason_occurs(plans: list[Plan]) -> None:
    assert {BINDINGS[plan.binding] for plan in plans if plan.feasible} == set(BINDINGS)
    assert {REASONS[plan.reason] for plan in [*plans, no_answer()]} == set(REASONS)
    assert all((plan.reason == 0) == plan.feasible for plan in plans)


def test_there_is_no_nan_and_a_feasible_plan_keeps_its_limits(cases: dict[str, NDArray[np.float64]], plans: list[Plan]) -> None:
    assert not any(math.isnan(value) for plan in plans for value in plan)
    for plan, max_time_s, max_energy_j in zip(plans, cases["max_time_s"], cases["max_energy_j"], strict=True):
        if plan.feasible:
            assert plan.compute_s + plan.upload_s <= max_time_s * (1 + 1e-12)
            assert plan.compute_j + plan.upload_j <= max_energy_j * (1 + 1e-12)
        else:
            assert plan.cost == plan.upload_s == plan.upload_j == math.inf


@given(log_budget=st.floats(1e-12, 600))
def test_energy_limit_is_the_lower_branch_of_lambert(log_budget: float) -> None:
    """−x − W₋₁(−x e^−x) with x = exp(−log_budget), in 60 digits."""
    with mpmath.workdps(60 + int(log_budget)):
        x = mpmath.exp(-mpmath.mpf(log_budget))
        expected = -x - mpmath.lambertw(-x * mpmath.exp(-x), -1).real
        assert abs(efficiency_at_energy(log_budget) / expected - 1) < 1e-13


@given(log_r=st.floats(-60, 700) | st.floats(-3, 3))
def test_optimum_is_the_upper_branch_of_lambert(log_r: float) -> None:
    """1 + W₀((r − 1)/e), in 80 digits."""
    with mpmath.workdps(80):
        r = math.exp(log_r)
        expected = 1 + mpmath.lambertw((mpmath.mpf(r) - 1) / mpmath.e, 0).real
        assert abs(efficiency_at_optimum(r) / expected - 1) < 1e-13


def test_optimum_at_either_end() -> None:
    assert efficiency_at_optimum(0.0) == 0.0 and efficiency_at_optimum(math.inf) == math.inf


@given(
    gain=st.floats(1e-60, 1e60),
    cpu_hz=st.floats(1, 1e15),
    samples=st.integers(1, 10**12),
    energy_weight=st.one_of(st.sampled_from([0.0, 1.0, 5e-324, 1 - 2**-53]), st.floats(0, 1)),
    update_bits=st.floats(1e-40, 1e40),
    max_time_s=st.floats(1e-40, 1e40),
    max_energy_j=st.floats(1e-40, 1e40),
)
def test_any_legal_input_gives_a_plan(
    gain: float,
    cpu_hz: float,
    samples: int,
    energy_weight: float,
    update_bits: float,
    max_time_s: float,
    max_energy_j: float,
) -> None:
    terms = Terms(1e6, 4e-19, 1.0, update_bits, 5e6, 2e-28, energy_weight, max_time_s, max_energy_j)
    plan = optimal_plan(terms, gain, cpu_hz, samples)
    assert not any(math.isnan(value) for value in plan)
    if plan.feasible:
        assert plan.min_power_w * (1 - 1e-12) <= plan.power_w <= plan.max_power_w
        assert math.isfinite(plan.cost)


@given(fraction=st.floats(0, 1), gain=st.floats(1e-15, 1e-6), energy_weight=st.floats(0, 1))
def test_no_other_allowed_power_is_cheaper(fraction: float, gain: float, energy_weight: float) -> None:
    terms = Terms(1e6, 4e-19, 1.0, 8e6, 5e6, 2e-28, energy_weight, 1.0, 1.2)
    plan = optimal_plan(terms, gain, 2e9, 85)
    if not plan.feasible:
        return
    other_w = plan.min_power_w * (plan.max_power_w / plan.min_power_w) ** fraction
    upload_s = 8 * math.log(2) / math.log1p(other_w * gain / 4e-19)
    other_cost = (1 - energy_weight) * (plan.compute_s + upload_s) / 1.0
    other_cost += energy_weight * (plan.compute_j + other_w * upload_s) / 1.2
    assert plan.cost <= other_cost * (1 + 1e-12)


def test_full_power_never_declines() -> None:
    plan = full_power_plan(Terms(1e6, 4e-19, 1.0, 8e6, 5e6, 2e-28, 0.5, 1.0, 1.2), 1e-19, 1e8, 100)
    assert plan.feasible and plan.power_w == 1.0
    assert plan.compute_s + plan.upload_s > 1.0, "this one breaks C6, and full power does not look"


def test_arrays_are_broadcast_and_agree_with_scalars() -> None:
    gains, samples = np.array([[1e-12], [1e-16]]), np.array([70, 85, 100])
    plan = plan_power(Config(), gains, 2e9, samples)
    assert plan.power_w.shape == plan.reason.shape == (2, 3)
    for row in range(2):
        for column in range(3):
            one = plan_power(Config(), float(gains[row, 0]), 2e9, int(samples[column]))
            assert one.power_w == plan.power_w[row, column]
            assert one.reason == plan.reason[row, column]
            assert isinstance(one.feasible, bool)


def test_arrays_that_do_not_go_together_and_empty_ones() -> None:
    with pytest.raises(FedtwinError, match="do not go together"):
        plan_power(Config(), [1e-12, 1e-12], 2e9, [80, 80, 80])
    empty = plan_power(Config(), [], 2e9, 80)
    assert empty.power_w.shape == (0,) and empty.reason.dtype.kind == "U" and empty.feasible.dtype == bool


def test_quantities_of_a_device_go_with_the_rest() -> None:
    own: dict[str, Any] = {
        "max_power_w": np.array([0.01, 0.1, 1.0]),
        "cycles_per_sample": 3e6,
        "update_bits": [[8e6], [4e6]],
        "max_time_s": 0.8,
        "max_energy_j": np.array([0.9, 1.0, 2.0]),
    }
    plan = plan_power(Config(), 1e-12, [2e9, 1.5e9, 2e9], 85, **own)
    assert plan.power_w.shape == (2, 3)
    for row in range(2):
        for column in range(3):
            one = {name: float(np.broadcast_to(np.asarray(values), (2, 3))[row, column]) for name, values in own.items()}
            settings = {
                "radio.max_power_w": one["max_power_w"],
                "radio.update_bits": one["update_bits"],
                "compute.cycles_per_sample": one["cycles_per_sample"],
                "objective.max_time_s": one["max_time_s"],
                "objective.max_energy_j": one["max_energy_j"],
            }
            alone = plan_power(load_config(overrides=settings), 1e-12, [2e9, 1.5e9, 2e9][column], 85)
            assert (alone.power_w, alone.cost, alone.time_s) == (
                plan.power_w[row, column], plan.cost[row, column], plan.time_s[row, column],
            )  # fmt: skip
    with pytest.raises(FedtwinError, match=r"gain, cpu_hz, samples and max_power_w have shapes .* do not go together"):
        plan_power(Config(), [1e-12, 1e-12], 2e9, 80, max_power_w=[1.0, 1.0, 1.0])
    with pytest.raises(FedtwinError, match=r"update_bits = 0\.0 is not allowed"):
        plan_power(Config(), 1e-12, 2e9, 80, update_bits=0.0)


def test_an_infeasible_plan_says_so() -> None:
    plan = plan_power(load_config(overrides={"objective.max_time_s": 0.1}), 1e-12, 2e9, 85)
    assert (plan.power_w, plan.feasible, plan.reason) == (0.0, False, "compute-time")
    assert plan.time_s == plan.energy_j == plan.cost == math.inf


@pytest.mark.parametrize(
    ("gain", "cpu_hz", "samples", "named"),
    [
        (0.0, 1e9, 80, "gain = 0.0"),
        (math.nan, 1e9, 80, "gain = nan"),
        (1e-12, -1, 80, "cpu_hz"),
        (1e-12, 1e9, "x", "samples"),
        (1e-12, True, 80, "cpu_hz = True"),
    ],
)
def test_bad_input_is_named(gain: float, cpu_hz: float, samples: Any, named: str) -> None:
    with pytest.raises(FedtwinError, match=named):
        plan_power(Config(), gain, cpu_hz, samples)


def test_what_the_fleet_has_alike_is_used_and_what_it_has_not_is_asked_for(tmp_path: Path) -> None:
    alike = plan_power(load_config(overrides={"fleet.max_power_w": 0.01}), 1e-10, 2e9, 80)
    assert alike == plan_power(load_config(overrides={"radio.max_power_w": 0.01}), 1e-10, 2e9, 80)
    each = load_config(overrides={"fleet.max_power_w": [0.01, 0.02]})
    with pytest.raises(FedtwinError, match=r"^fleet\.max_power_w gives every device a max_power_w of its own: say which one"):
        plan_power(each, 1e-10, 2e9, 80)
    assert plan_power(each, 1e-10, 2e9, 80, max_power_w=0.01) == alike
    (tmp_path / "fleet.csv").write_text("samples,cpu_hz,distance_m,max_time_s\n80,2e9,100,0.5\n")
    with pytest.raises(FedtwinError, match=r"^fleet\.file gives every device a max_time_s of its own"):
        plan_power(load_config(overrides={"fleet.file": str(tmp_path / "fleet.csv"), "fleet.channels": 1}), 1e-10, 2e9, 80)
