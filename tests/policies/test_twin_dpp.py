"""twin-dpp decides by what the twin predicts, and lets nobody starve by an old fact."""

import math

import pytest

from fedtwin.policies import Knobs, Prediction, View
from fedtwin.policies.twin_dpp import POLICY, explain, predicted_cost, score
from fedtwin.sim import Result, simulate

KNOBS = Knobs(v=1e5, bonus_scale=1.0, seed=0, min_mean_samples=1.0)
NOBODY_KNOWS = Prediction(math.nan, math.nan, math.nan, False, False)
GOOD, BAD = Prediction(0.6, 0.2, 0.4, True, False), Prediction(math.inf, math.inf, math.inf, False, False)
BAD_CPU = BAD._replace(by_its_cpu=True)


def view(prediction: Prediction, gain_age_s: float) -> View:
    return View(7, 0, 80.0, 1, 1, 0.9, 30.0, 1e-12, 0.2, gain_age_s, 1.0, 3, math.nan, prediction)


@pytest.mark.parametrize(
    ("prediction", "gain_age_s", "cost"),
    [
        (NOBODY_KNOWS, math.nan, 0.0),
        (GOOD, 4.0, 0.4),
        (GOOD, 0.0, 0.4),
        (BAD, 4.0, 1.0),
        (BAD, 0.0, math.inf),
        (BAD_CPU, 0.0, 1.0),
    ],
)
def test_what_a_device_is_taken_to_cost(prediction: Prediction, gain_age_s: float, cost: float) -> None:
    seen = view(prediction, gain_age_s)
    assert predicted_cost(seen) == cost
    assert score(seen, KNOBS) == (math.inf if cost == math.inf else 1e5 * cost - 30.0 * 80.0)
    assert sum(explain(seen, KNOBS).values()) == score(seen, KNOBS)


def run(policy: str, gain: str, seed: int = 0) -> Result:
    settings = {"run.rounds": 4000, "run.seed": seed, "twin.gain": gain, "policy.name": policy, "fleet.channels": 15}
    return simulate(settings, records=False)


@pytest.mark.slow
def test_sounding_closes_most_of_the_gap_to_the_genie_and_old_gains_less() -> None:
    cost = {
        name: sum(run(policy, gain, seed).summary.mean_cost or math.nan for seed in range(3)) / 3
        for name, policy, gain in (
            ("learned", "cu-ucb", "last-heard"),
            ("truth", "genie", "last-heard"),
            ("sounded", "twin-dpp", "current"),
            ("heard", "twin-dpp", "last-heard"),
            ("mean", "twin-dpp", "mean"),
        )
    }
    closed = {name: (cost["learned"] - cost[name]) / (cost["learned"] - cost["truth"]) for name in ("sounded", "heard", "mean")}
    assert closed["sounded"] > 0.65
    assert 0.1 < closed["heard"] < closed["sounded"] - 0.2
    assert 0.1 < closed["mean"] < closed["sounded"] - 0.2


@pytest.mark.slow
def test_nobody_starves() -> None:
    for gain in ("current", "last-heard", "mean"):
        assert run("twin-dpp", gain).summary.least_mean_samples > 0.8


def test_it_is_scanned() -> None:
    assert POLICY.lead is None and POLICY.predicts
