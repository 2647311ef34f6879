"""Every registered rule keeps its word, and whoever breaks it is found out, in one sentence."""

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Aggregator, Upload, no_state
from fedtwin.registry import AGGREGATORS
from fedtwin.testing import check_aggregator

CALLS: list[int] = []


class Settings(NamedTuple):
    """Of a rule that has some."""

    share: float = 0.5
    how: str = "mean"


class Speed(NamedTuple):
    """The state of a rule with momentum."""

    speed: Any
    by_device: dict[int, Any]
    last: tuple[Any, ...] = ()


def momentum_init(model: Any, settings: Any) -> Speed:  # noqa: ARG001
    return Speed(0.0 * model, {})


def momentum(state: Speed, model: Any, upload: Upload, settings: Any) -> tuple[Speed, Any]:
    speed = settings.own.share * state.speed + (upload.weights - upload.start)
    by_device = {**state.by_device, upload.device: state.by_device.get(upload.device, 0) + 1}
    return Speed(speed, by_device, (*state.last[-2:], upload.weights)), model + 0.1 * speed


def in_place(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    model += upload.weights
    return state, model


def upload_in_place(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    weights = upload.weights
    weights *= 0.5
    return state, model + weights


def state_in_place(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    state.append(upload.samples)
    return state, model + len(state) * upload.weights


def empty_list(model: Any, settings: Any) -> list[Any]:  # noqa: ARG001
    return []


def by_chance(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return state, model + float(np.random.default_rng().random()) * upload.weights


@functools.cache
def drawn(device: int) -> float:  # noqa: ARG001
    return float(np.random.default_rng().random())


def by_memoised_chance(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return state, model + drawn(upload.device) * upload.weights


def remembering(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    CALLS.append(1)
    return state, model + (1.0 + len(CALLS) // 1000) * upload.weights


def shrinking(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return state, upload.weights[:-1]


def not_finite(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return state, model + upload.weights * float("inf")


def too_precise(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return state, np.asarray(model, np.float64) + np.asarray(upload.weights)


def not_a_pair(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return model


def wants_a_start(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return state, model + upload.start


def holds_a_set(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return {upload.device}, None


def numpy_only(state: Any, model: Any, upload: Upload, settings: Any) -> Any:  # noqa: ARG001
    return state, (model if isinstance(model, np.ndarray) else 2.0 * model) + upload.weights


@pytest.mark.parametrize("name", AGGREGATORS)
def test_every_registered_rule_keeps_its_word(name: str) -> None:
    check_aggregator(name)


def test_a_rule_with_all_that_a_rule_may_have_keeps_its_word() -> None:
    rule = Aggregator(momentum_init, momentum, settings=Settings, needs_start=True)
    check_aggregator(rule)
    check_aggregator(rule, {"share": 0.9})
    with pytest.raises(FedtwinError, match=r"learning\.aggregation_settings\.shar is not a setting \(did you mean share\?\)"):
        check_aggregator(rule, {"shar": 0.9})


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (in_place, r"fails in apply: ValueError: .*read-only \(.*test_aggregators\.py, line \d+\), and nothing .* in place"),
        (upload_in_place, "nothing may be changed in place"),
        (state_in_place, "changes the state, the model or an upload in place"),
        (by_chance, "answers the same question in two ways"),
        (by_memoised_chance, "comes to another state or model when the same uploads are applied again"),
        (remembering, "answers the same question in two ways|when the same uploads are applied again"),
        (shrinking, r"gives a model of shape \(0,\) and float32 in apply, not of shape \(1,\) and float32"),
        (not_finite, "gives a model in apply that is not finite"),
        (too_precise, r"gives a model of shape \(1,\) and float64 in apply"),
        (not_a_pair, "gives a ndarray in apply, not a pair"),
        (wants_a_start, "fails in apply: TypeError"),
        (holds_a_set, "has a state that no checkpoint can hold: state is a set, which is no array and no number"),
        (numpy_only, "gives PyTorch's vectors other models than NumPy's"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_word_is_one_sentence(apply: Any, words: str) -> None:
    rule = Aggregator(empty_list if apply is state_in_place else no_state, apply)
    with pytest.raises(FedtwinError, match=words) as told:
        check_aggregator(rule, uploads=600 if apply is remembering else 10)
    assert "\n" not in str(told.value) and str(told.value).endswith(".")


def test_a_change_in_place_is_found_in_pytorchs_vectors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.testing.aggregators._kinds", lambda: iter([_tensor]))
    for apply in (in_place, upload_in_place):
        with pytest.raises(FedtwinError, match="changes the state, the model or an upload in place"):
            check_aggregator(Aggregator(no_state, apply))


def _tensor(values: Any) -> Any:
    import torch

    return torch.from_numpy(values.astype(np.float32))


def test_what_is_no_rule_is_told() -> None:
    with pytest.raises(FedtwinError, match="is a function, not a fedtwin"):
        check_aggregator(momentum)  # type: ignore[arg-type]
