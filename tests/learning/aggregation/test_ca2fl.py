"""CA2FL: changes calibrated by the last change of every device, which is kept, in eight bits where there are many."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Upload
from fedtwin.learning.aggregation.ca2fl import Cached
from fedtwin.learning.aggregation.device_cache import EightBits, vector_of
from fedtwin.learning.aggregation.held import Held, same_bits
from fedtwin.testing import check_aggregator
from tests.learning.aggregation.made_up import SIZE, models, rule, uploads


def of(buffer_size: int = 3, mixing: float = 0.6, **own: Any) -> dict[str, Any]:
    settings = {f"learning.aggregation_settings.{key}": value for key, value in own.items()}
    return {"learning.aggregation": "ca2fl", "learning.buffer_size": buffer_size, "learning.mixing": mixing, **settings}


def by_the_paper(given: list[Upload], buffer_size: int, mixing: float, devices: int) -> list[Any]:
    """Algorithm 2 with nothing saved: the whole cache is looked at in every step, in double precision."""
    w, cache, found = np.ones(SIZE), dict[int, Any](), []
    for first in range(0, len(given) - buffer_size + 1, buffer_size):
        some = given[first : first + buffer_size]
        heard = np.array([cache[n] for n in sorted(cache)]).reshape(-1, SIZE)
        if len(cache) < devices:
            unheard, h = np.zeros(SIZE), heard.sum(axis=0) / devices
        else:
            unheard = h = heard.mean(axis=0) if cache else np.zeros(SIZE)
        changes = [one.weights.astype(float) - one.start for one in some]
        calibrated = [change - cache.get(one.device, unheard) for one, change in zip(some, changes, strict=True)]
        w = w + mixing * (h + sum(calibrated) / buffer_size)
        cache.update({one.device: change for one, change in zip(some, changes, strict=True)})
        found.append(w)
    return found


@given(
    buffer_size=st.integers(1, 5),
    mixing=st.floats(0.05, 1.0),
    devices=st.sampled_from([0, 3, 7, 50]),
    fleet=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_it_is_the_papers_algorithm(buffer_size: int, mixing: float, devices: int, fleet: int, seed: int) -> None:
    """Also where a device uploads twice between two steps, and more devices come than were said."""
    given = uploads(30, seed, devices=fleet)
    found = list(models(rule(of(buffer_size, mixing, devices=devices)), given))
    for step, expected in enumerate(by_the_paper(given, buffer_size, mixing, devices), 1):
        assert found[step * buffer_size - 1] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_model_stays_until_k_uploads_have_come() -> None:
    found = [np.ones(SIZE, np.float32), *models(rule(of(4)), uploads(12))]
    assert [bool((one == other).all()) for one, other in pairwise(found)] == [True, True, True, False] * 3


def test_devices_that_always_change_the_same_are_averaged_though_one_of_them_comes_more_often() -> None:
    """What the calibration is for: FedBuff goes where the one that comes often says, CA2FL where their mean does."""
    chance, zero = np.random.default_rng(1), np.zeros(SIZE, np.float32)
    wanted = chance.normal(size=(4, SIZE)).astype(np.float32)
    first = [Upload(zero, wanted[n], 0, 80.0, n, n) for n in range(4)]
    often = [Upload(zero, wanted[0], 0, 80.0, 0, k) for k in range(4, 24)]
    steps = {}
    for name in ("ca2fl", "fedbuff"):
        found = list(models(rule({**of(2, 1.0), "learning.aggregation": name}), [*first, *often]))
        steps[name] = found[-1] - found[-3]
    assert steps["ca2fl"] == pytest.approx(wanted.mean(axis=0), rel=1e-3, abs=1e-3)
    assert steps["fedbuff"] == pytest.approx(wanted[0], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("own", [{"devices": 8}, {"int8_beyond": 0}, {"int8_beyond": 2}, {"int8_beyond": 3, "devices": 4}])
def test_it_keeps_its_word(own: dict[str, Any]) -> None:
    check_aggregator("ca2fl", own)


@pytest.mark.parametrize("own", [{"devices": -1}, {"devices": 2.5}, {"int8_beyond": -1}, {"int8_beyond": "never"}])
def test_other_settings_are_told(own: dict[str, Any]) -> None:
    with pytest.raises(
        FedtwinError, match=rf"learning\.aggregation_settings\.{next(iter(own))} = .* is not allowed: it must be"
    ):
        rule(of(**own))


def after(asked: Any, given: list[Upload]) -> tuple[Cached, Any]:
    model: Any = np.ones(given[0].weights.size, np.float32)
    state = asked.init(model)
    for upload in given:
        state, model = asked.apply(state, model, upload)
    return state, model


def test_who_uploads_beyond_so_many_devices_is_kept_in_eight_bits() -> None:
    given = [one._replace(device=k) for k, one in enumerate(uploads(6))]
    state, _ = after(rule(of(1, int8_beyond=4)), [*given, given[1]])
    kept = {device: isinstance(last, EightBits) for device, last in state.last.items()}
    assert kept == {0: False, 1: True, 2: False, 3: False, 4: True, 5: True}, "1 came again when there were six"
    for one in given:
        step = np.abs(one.weights - one.start).max() / 127
        assert np.abs(vector_of(state.last[one.device]) - (one.weights - one.start)).max() <= 0.51 * step


def test_the_sum_is_that_of_the_cache_in_eight_bits_too() -> None:
    for beyond in (0, 3, 300):
        state, _ = after(rule(of(2, int8_beyond=beyond)), uploads(400, devices=7))
        exactly = sum(vector_of(last).astype(np.float64) for last in state.last.values())
        assert state.total.rounded + state.total.lost.astype(np.float64) == pytest.approx(exactly, rel=1e-6, abs=1e-6)


def test_eight_bits_are_nearly_as_good() -> None:
    models_ = [after(rule(of(3, int8_beyond=beyond)), uploads(300, devices=20))[1] for beyond in (0, 300)]
    assert 0.0 < np.abs(models_[0] - models_[1]).max() < 0.05


@pytest.mark.parametrize("beyond", [0, 2, 300])
@given(stop=st.integers(0, 29))
def test_it_goes_on_with_the_same_bits_from_what_was_held(beyond: int, stop: int) -> None:
    asked, given = rule(of(4, int8_beyond=beyond)), uploads(30)
    state, model = after(asked, given[:stop]) if stop else (asked.init(np.ones(SIZE, np.float32)), np.ones(SIZE, np.float32))
    held = asked.hold(state, model)
    state = asked.restore(Held(json.loads(json.dumps(held.form)), [np.array(array) for array in held.arrays]), model)
    for upload in given[stop:]:
        state, model = asked.apply(state, model, upload)
    whole = after(asked, given)
    assert same_bits(asked.hold(state, model), asked.hold(*whole)) and model.tobytes() == whole[1].tobytes()


def test_a_device_takes_a_vector_or_a_quarter_of_one() -> None:
    given = [one._replace(device=k % 50) for k, one in enumerate(uploads(100, size=1000))]
    for beyond, bytes_each in ((300, 4000), (0, 1000)):
        asked = rule(of(1, int8_beyond=beyond))
        state, model = after(asked, given)
        assert asked.hold(state, model).size_bytes == 50 * bytes_each + 3 * 4000, "with the sum, what it lost, and the step's"
