"""The steps from one scheme to another: what each takes off, and its share."""

import pytest

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.job import Outcome
from fedtwin.experiments.specs.figure import load_experiment
from fedtwin.figures.figure import figure
from fedtwin.figures.kinds.base import Curve
from fedtwin.figures.kinds.decomposition import decomposition_rows
from fedtwin.sim import Series


def curve(scheme: str, costs: list[float]) -> Curve:
    return Curve(scheme, 0.3, Config(), [Outcome({"mean_cost": cost, "rounds": 9}, Series()) for cost in costs])


def test_gains_and_shares_are_of_every_fleet_by_itself() -> None:
    first, second, third = curve("a", [1.0, 2.0]), curve("b", [0.75, 1.0]), curve("c", [0.5, 0.0])
    rows = decomposition_rows(load_experiment("decomposition"), [first, second, third])
    assert [(row["energy_weight"], row["from"], row["to"]) for row in rows] == [(0.3, "a", "b"), (0.3, "b", "c")]
    assert [row["gain"] for row in rows] == [0.625, 0.625] and [row["share"] for row in rows] == [0.5, 0.5]
    uneven = decomposition_rows(load_experiment("decomposition"), [first, curve("b", [0.9, 1.8]), third])
    assert [row["share"] for row in uneven] == pytest.approx([(0.2 + 0.1) / 2, (0.8 + 0.9) / 2])


def test_the_middle_step_is_the_first_scheme_at_optimal_power() -> None:
    experiment = load_experiment("decomposition")
    configs = {scheme: config for scheme, value, config in experiment.configs("quick") if value == 0.1}
    before, between, after = (configs[scheme] for scheme in experiment.schemes)
    assert (before.policy.name, before.policy.power) == ("fairness", "scheme")
    assert (between.policy.name, between.policy.power) == ("fairness", "optimal")
    assert after.policy.name == "cu-ucb"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"schemes": "CU-UCB"}, "Figure decomposition-.* needs 2 schemes or more"),
        (
            {"settings": {"policy.power": "max"}},
            "policy.power is not to be set for figure decomposition: it is what the figure",
        ),
    ],
)
def test_what_cannot_be_decomposed_is_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        figure("decomposition", profile="quick", **options)  # type: ignore[arg-type]
