import math
from typing import Any

import pytest

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.analysis.comparison import Comparison, comparison_of
from fedtwin.experiments.analysis.metrics import chosen_metrics, to_accuracy
from fedtwin.learning.evaluation import Evaluation

ALL = ["mean_cost", "mean_time_s", "mean_energy_j", "virtual_time_s", "rounds", "declines", "least_mean_samples", "total_queue"]


def run(scheme: str, seed: int, **changed: Any) -> tuple[str, int, dict[str, Any]]:
    numbers = {name: float(seed + k) for k, name in enumerate(ALL)}
    return scheme, seed, {"scheme": scheme, "seed": seed, **numbers, "test_accuracy": 0.8, **changed}


def comparison(*runs: tuple[str, int, dict[str, Any]], metric: str = "time_to_accuracy_s") -> Comparison:
    return comparison_of(runs, (metric,), 0.9)


def test_every_scheme_and_seed_is_a_row() -> None:
    found = comparison_of([run(scheme, seed) for scheme in "ab" for seed in (3, 1)])
    table = found.to_pandas()
    assert list(zip(table["scheme"], table["seed"], strict=True)) == [("a", 3), ("a", 1), ("b", 3), ("b", 1)]
    assert list(table["mean_energy_j"]) == [5.0, 3.0, 5.0, 3.0]


def test_any_metric_is_paired_world_by_world() -> None:
    found = comparison_of([run("a", 0, declines=5), run("a", 1, declines=7), run("b", 1, declines=1), run("b", 0, declines=2)])
    (pair,) = found.paired("declines")
    assert (pair.metric, pair.seeds, pair.mean_difference, pair.left_out) == ("declines", 2, 4.5, ())
    assert found.paired()[0].mean_difference == 0.0


def test_a_pair_with_a_missing_value_is_named_and_left_out_of_the_statistic() -> None:
    times = {("a", 0): 10.0, ("a", 1): 20.0, ("a", 2): None, ("b", 0): 11.0, ("b", 1): 23.0, ("b", 2): 5.0}
    found = comparison(*(run(scheme, seed, time_to_accuracy_s=value) for (scheme, seed), value in times.items()))
    with pytest.warns(FedtwinWarning, match=r"a with seed 2 \(1 of 3 runs\) never reached the accuracy 0\.9"):
        (pair,) = found.paired("time_to_accuracy_s")
    assert (pair.seeds, pair.mean_difference, pair.left_out) == (2, -2.0, (2,))
    with pytest.warns(FedtwinWarning):
        report = found.as_dict()
    assert report["schemes"]["a"]["time_to_accuracy_s"] is None, "a mean over those that made it would flatter"
    assert report["schemes"]["b"]["time_to_accuracy_s"] == pytest.approx(13.0)
    assert report["paired"][0]["left_out"] == (2,) and report["runs"][2]["time_to_accuracy_s"] is None


def test_without_any_pair_there_is_no_number() -> None:
    found = comparison(run("a", 0, time_to_accuracy_s=None), run("b", 0, time_to_accuracy_s=3.0))
    with pytest.warns(FedtwinWarning, match="their pairs are left out"):
        (pair,) = found.paired("time_to_accuracy_s")
    assert pair.seeds == 0 and math.isnan(pair.mean_difference) and pair.p_value is None and not pair.significant
    assert found.table.schema.field("time_to_accuracy_s").type == "double"


def test_a_seed_that_only_one_scheme_has_is_named() -> None:
    (pair,) = comparison_of([run("a", 0), run("a", 1), run("b", 1)]).paired()
    assert (pair.seeds, pair.left_out) == (1, (0,))


def test_the_first_evaluation_that_reaches_the_accuracy_counts() -> None:
    at = [Evaluation(k, 4.0 * k, 2.0 * k, 1.0, accuracy) for k, accuracy in enumerate((0.1, 0.9, 0.85, 0.95))]
    assert to_accuracy(at, 0.9) == {"time_to_accuracy_s": 4.0, "energy_to_accuracy_j": 2.0}
    assert to_accuracy(at, 0.95)["time_to_accuracy_s"] == 12.0
    assert to_accuracy(at, 0.96) == {"time_to_accuracy_s": None, "energy_to_accuracy_j": None}
    assert to_accuracy(at, None) == {}


@pytest.mark.parametrize(
    ("metrics", "accuracy", "trains", "sentence"),
    [
        ("mean_costs", None, False, r"'mean_costs' is unknown \(did you mean mean_cost\?\): choose from mean_cost, "),
        ("scheme", None, False, "metric 'scheme' is unknown"),
        ("test_accuracy", None, False, r"'test_accuracy' is of runs that train a model: there is no \[learning\] section"),
        ("time_to_accuracy_s", None, True, r"needs an accuracy to reach: say --accuracy 0\.9"),
        (None, 90, True, "accuracy = 90 is not allowed: it must be above 0 and at most 1"),
        (None, 0.9, False, r"accuracy = 0\.9 asks for runs that train a model"),
    ],
)
def test_a_metric_that_cannot_be_had_is_one_sentence(
    metrics: str | None, accuracy: float | None, trains: bool, sentence: str
) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        chosen_metrics(metrics, accuracy, trains=trains)


def test_an_accuracy_brings_its_metrics_along() -> None:
    assert chosen_metrics(None, 0.9, trains=True) == ("mean_cost", "time_to_accuracy_s", "energy_to_accuracy_j")
    assert chosen_metrics(["mean_energy_j", "mean_energy_j"], None, trains=False) == ("mean_energy_j",)
