from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.config import LearningConfig
from fedtwin.learning.aggregate import FedAsync, FedAvg, FedBuff, make_aggregator, newest_counters, refusal
from fedtwin.learning.layout import Weights
from fedtwin.learning.staleness import staleness_weight
from tests.test_package import loaded_after

MODEL = np.array([1.0, 2.0, 3.0], np.float32)
UPLOAD = np.array([3.0, 2.0, -1.0], np.float32)


def weights(floats: list[float], counters: list[int]) -> Weights:
    return Weights(np.array(floats, np.float32), np.array(counters, np.int64))


@pytest.mark.parametrize("kind", ["constant", "hinge", "polynomial"])
@given(staleness=st.integers(0, 1000), more=st.integers(0, 1000))
def test_staleness_functions_begin_at_one_and_never_rise(kind: Any, staleness: int, more: int) -> None:
    config = LearningConfig(staleness=kind)
    assert staleness_weight(config, 0) == 1.0
    assert 0.0 < staleness_weight(config, staleness + more) <= staleness_weight(config, staleness) <= 1.0


def test_staleness_functions_are_those_of_fedasync() -> None:
    assert staleness_weight(LearningConfig(staleness_exponent=0.5), 3) == 0.5
    assert staleness_weight(LearningConfig(staleness="hinge", hinge_a=10, hinge_b=4), 6) == pytest.approx(1 / 21)
    assert staleness_weight(LearningConfig(staleness="constant"), 99) == 1.0


def test_fedasync_is_the_papers_equation_and_changes_nothing_in_place() -> None:
    aggregator = FedAsync(LearningConfig(mixing=0.6, staleness_exponent=0.5))
    mixed = aggregator.add(MODEL, MODEL, UPLOAD, staleness=3, samples=80)
    assert mixed == pytest.approx(0.7 * MODEL + 0.3 * UPLOAD) and mixed.dtype == np.float32
    assert MODEL.tolist() == [1.0, 2.0, 3.0]


def test_fedavg_is_the_mean_weighted_by_samples_at_the_end_of_the_round() -> None:
    aggregator = FedAvg()
    for upload, samples in ((UPLOAD, 30.0), (MODEL, 70.0)):
        assert aggregator.add(MODEL, MODEL, upload, 0, samples) is MODEL
    assert aggregator.close_round(MODEL) == pytest.approx(0.3 * UPLOAD + 0.7 * MODEL)
    assert aggregator.close_round(MODEL) is MODEL, "an empty round changes nothing"


def test_fedbuff_waits_for_k_changes() -> None:
    aggregator = FedBuff(LearningConfig(buffer_size=2, mixing=0.5, staleness="constant"))
    start = np.zeros(3, np.float32)
    assert aggregator.add(MODEL, start, UPLOAD, 0, 80) is MODEL
    again = FedBuff(LearningConfig(buffer_size=2, mixing=0.5, staleness="constant"))
    again.restore(aggregator.state())
    for one in (aggregator, again):
        assert one.add(MODEL, MODEL, UPLOAD, 0, 80) == pytest.approx(MODEL + 0.25 * (UPLOAD + UPLOAD - MODEL))
        assert one.state() == {}


def test_the_scheme_decides_unless_told() -> None:
    assert isinstance(make_aggregator(LearningConfig(), "async"), FedAsync)
    assert isinstance(make_aggregator(LearningConfig(), "sync"), FedAvg)
    assert isinstance(make_aggregator(LearningConfig(aggregation="fedbuff"), "async"), FedBuff)


def test_counters_are_kept_not_averaged() -> None:
    assert newest_counters(np.array([3, 9]), np.array([5, 2])).tolist() == [5, 9]


@pytest.mark.parametrize(
    ("upload", "reason"),
    [
        (weights([1, 2], [1]), None),
        (weights([1], [1]), "wrong shape"),
        (weights([1, 2], []), "wrong shape"),
        (weights([1, float("nan")], [1]), "not finite"),
        (weights([1, float("inf")], [1]), "not finite"),
    ],
)
def test_what_must_not_be_mixed_in_is_refused(upload: Weights, reason: str | None) -> None:
    said = refusal(weights([0, 0], [0]), upload)
    assert said is None if reason is None else said is not None and reason in said


def test_what_is_known_to_be_finite_is_not_looked_at_again() -> None:
    model, upload = weights([0, 0], [0]), weights([1, 2], [1])
    assert refusal(model, upload, finite=True) is None
    assert refusal(model, upload, finite=False) == "values that are not finite"
    assert refusal(model, upload, train_loss=float("nan")) == "a training loss that is not finite"
    assert refusal(model, weights([1], [1]), finite=True) == "wrong shape: 1 values and 1 counters"


def test_aggregation_needs_no_torch() -> None:
    code = "import fedtwin.learning.aggregate, fedtwin.learning.layout; assert 'torch' not in sys.modules"
    assert "numpy" in loaded_after(code)
