from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.config import Config, LearningConfig, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Mixing, Upload, aggregation_of, load_aggregator, mixing_of, staleness_weight
from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.aggregation.fedavg import Sums
from fedtwin.learning.aggregation.fedbuff import Buffer
from fedtwin.learning.aggregation.held import same_bits
from fedtwin.learning.aggregation.refusals import newest_counters, refusal
from fedtwin.learning.layout import Weights, layout_of
from fedtwin.learning.notices import variances_out_of_bounds
from fedtwin.registry import AGGREGATORS
from tests.learning.aggregation import every_rule
from tests.test_package import loaded_after

MODEL = np.array([1.0, 2.0, 3.0], np.float32)
UPLOAD = np.array([3.0, 2.0, -1.0], np.float32)


def weights(floats: list[float], counters: list[int]) -> Weights:
    return Weights(np.array(floats, np.float32), np.array(counters, np.int64))


def rule(name: str, **learning: Any) -> Rule:
    mode = "sync" if name == "fedavg" else "async"
    settings = {"run.mode": mode, "learning.aggregation": name, "learning.average": "none"} | _in_learning(learning)
    found = aggregation_of(load_config(overrides=settings))
    assert isinstance(found, Rule)
    return found


def _in_learning(settings: dict[str, Any]) -> dict[str, Any]:
    return {f"learning.{key}": value for key, value in settings.items()}


def an_upload(floats: Any = UPLOAD, *, start: Any = None, staleness: int = 0, samples: float = 80.0) -> Upload:
    return Upload(start, floats, staleness, samples, 0, 1)


def mixing(**learning: Any) -> Mixing:
    return mixing_of(LearningConfig(**learning), load_aggregator("fedasync"))


@pytest.mark.parametrize("kind", ["constant", "hinge", "polynomial"])
@given(staleness=st.integers(0, 1000), more=st.integers(0, 1000))
def test_staleness_functions_begin_at_one_and_never_rise(kind: Any, staleness: int, more: int) -> None:
    settings = mixing(staleness=kind)
    assert staleness_weight(settings, 0) == 1.0
    assert 0.0 < staleness_weight(settings, staleness + more) <= staleness_weight(settings, staleness) <= 1.0


def test_staleness_functions_are_those_of_fedasync() -> None:
    assert staleness_weight(mixing(staleness_exponent=0.5), 3) == 0.5
    assert staleness_weight(mixing(staleness="hinge", hinge_a=10, hinge_b=4), 6) == pytest.approx(1 / 21)
    assert staleness_weight(mixing(staleness="constant"), 99) == 1.0


def test_fedasync_is_the_papers_equation_and_changes_nothing_in_place() -> None:
    mine = rule("fedasync", mixing=0.6, staleness_exponent=0.5)
    state, mixed = mine.apply(mine.init(MODEL), MODEL, an_upload(staleness=3))
    assert mixed == pytest.approx(0.7 * MODEL + 0.3 * UPLOAD) and mixed.dtype == np.float32
    assert MODEL.tolist() == [1.0, 2.0, 3.0] and state == ()


def test_fedavg_is_the_mean_weighted_by_samples_at_the_end_of_the_round() -> None:
    mine = rule("fedavg")
    state = mine.init(MODEL)
    for floats, samples in ((UPLOAD, 30.0), (MODEL, 70.0)):
        state, model = mine.apply(state, MODEL, an_upload(floats, samples=samples))
        assert model is MODEL
    state, model = mine.close_round(state, MODEL)
    assert model == pytest.approx(0.3 * UPLOAD + 0.7 * MODEL) and state == Sums()
    assert mine.close_round(state, MODEL)[1] is MODEL, "an empty round changes nothing"


def test_fedbuff_waits_for_k_changes() -> None:
    mine = rule("fedbuff", buffer_size=2, mixing=0.5, staleness="constant")
    state, model = mine.apply(mine.init(MODEL), MODEL, an_upload(start=np.zeros(3, np.float32)))
    assert model is MODEL
    again = mine.restore(mine.hold(state, MODEL), MODEL)
    for one in (state, again):
        after, model = mine.apply(one, MODEL, an_upload(start=MODEL))
        assert model == pytest.approx(MODEL + 0.25 * (UPLOAD + UPLOAD - MODEL)) and after == Buffer()


def test_a_state_is_initial_again_when_it_holds_nothing() -> None:
    mine = rule("fedbuff", buffer_size=2)
    state = mine.init(MODEL)
    for initial in (False, True):
        state, _ = mine.apply(state, MODEL, an_upload(start=MODEL))
        assert mine.is_initial(mine.hold(state, MODEL), MODEL) == initial
    assert same_bits(mine.hold(state, MODEL), mine.hold(Buffer(), MODEL))


def test_the_scheme_decides_unless_told() -> None:
    for mode, name in (("async", "fedasync"), ("sync", "fedavg")):
        assert aggregation_of(load_config(overrides={"run.mode": mode, "learning.dataset": "digits"})).name == name
    assert rule("fedbuff").needs_start and not rule("fedasync").needs_start


def test_a_rule_says_for_which_mode_it_is() -> None:
    config = Config(learning=LearningConfig(aggregation="fedavg"))
    with pytest.raises(FedtwinError, match=r"learning\.aggregation = 'fedavg' needs run\.mode = 'sync': it is not for 'async'"):
        aggregation_of(config)


def test_a_name_that_nobody_has_is_told_with_those_there_are() -> None:
    for name in AGGREGATORS:
        assert load_config(overrides={"learning.aggregation": name}).own_code == {}
    with pytest.raises(
        FedtwinError, match=r"'fedsomething' is not allowed: choose one of scheme, fedasync, .*module:attribute"
    ):
        load_config(overrides={"learning.aggregation": "fedsomething"})


def test_settings_that_a_rule_has_not_declared_are_told() -> None:
    config = load_config(overrides={"learning.aggregation_settings.size": 5})
    assert config.learning is not None and config.learning.aggregation_settings == {"size": 5}
    with pytest.raises(FedtwinError, match=r"learning\.aggregation_settings\.size is not a setting: .* has no settings"):
        aggregation_of(config)


def test_every_rule_is_among_those_that_are_resumed_and_run_by_every_executor() -> None:
    known = {aggregation_of(load_config(overrides=settings)).name for settings in every_rule.RULES.values()}
    assert known == set(AGGREGATORS) and set(every_rule.EACH_ONCE) <= set(every_rule.RULES)


@pytest.mark.parametrize(
    ("name", "model", "told"),
    [("change", "resnet18", True), ("change", "resnet18-groupnorm", False), ("fedasync", "resnet18", False)],
)
def test_a_rule_that_may_make_variances_negative_is_told_of(name: str, model: str, told: bool) -> None:
    config = load_config(overrides={"learning.aggregation": name, "learning.model": model})
    layout = layout_of({"bn.weight": ((3,), False), **({"bn.running_var": ((3,), False)} if model == "resnet18" else {})})
    assert config.learning is not None
    sentence = variances_out_of_bounds(config.learning, aggregation_of(config), layout)
    assert (sentence is not None) == told
    assert sentence is None or "learning.model = 'resnet18' has" in sentence


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
    rules = "; ".join(f"import {place.partition(':')[0]}" for place in AGGREGATORS.values())
    assert "numpy" in loaded_after(f"{rules}, fedtwin.learning.layout; assert 'torch' not in sys.modules")
