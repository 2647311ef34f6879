"""The averaged model: its equation, the same half-life for every rule, and the same bits after a kill and by every executor."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.config import load_config
from fedtwin.learning.aggregation import Upload, aggregation_of
from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.aggregation.average import Averaged, AveragedRule, decay_of
from fedtwin.learning.aggregation.held import Held, in_memory, same_bits
from fedtwin.sim import resume, simulate
from tests.conftest import mostly_slow
from tests.learning.aggregation import every_rule

HALF_LIFE = 20.0
SIZE = 5
RULES: dict[str, dict[str, Any]] = {**every_rule.RULES, "one's own": {"learning.aggregation": "tests.live.gathering_rule:RULE"}}
NAMES = mostly_slow(RULES, *every_rule.EACH_ONCE, "one's own")
FILES = ("evaluations.parquet", "model.safetensors", "model-best.safetensors", "model-plain.safetensors", "summary.json")


def averaged(name: str = "fedasync", **changes: Any) -> AveragedRule:
    rule = aggregation_of(load_config(overrides={**RULES[name], "learning.average_half_life": HALF_LIFE, **changes}))
    assert isinstance(rule, AveragedRule)
    return rule


def is_synchronous(name: str) -> bool:
    return RULES[name].get("run.mode") == "sync"


def uploads(count: int, vector: Any = np.asarray) -> list[Upload]:
    drawn = np.random.default_rng(3).normal(size=(count, 2, SIZE)).astype(np.float32)
    return [Upload(vector(start), vector(weights), 2, 80.0, k % 3, k) for k, (start, weights) in enumerate(drawn)]


def followed(name: str, count: int, vector: Any = np.asarray) -> list[tuple[Averaged, Any]]:
    """State and model after every upload; four of them are a synchronous round."""
    rule, model = averaged(name), vector(np.ones(SIZE, np.float32))
    state, found = rule.init(model), []
    for number, upload in enumerate(uploads(count, vector)):
        state, model = rule.apply(state, model, upload)
        if is_synchronous(name) and number % 4 == 3:
            state, model = rule.close_round(state, model)
        found.append((state, model))
    return found


def test_it_is_the_default_and_none_is_the_rule_itself() -> None:
    assert isinstance(aggregation_of(load_config(overrides={"learning.dataset": "digits"})), AveragedRule)
    assert isinstance(aggregation_of(load_config(overrides={"learning.average": "none"})), Rule)
    assert isinstance(aggregation_of(load_config()), Rule), "without [learning] the tensors are all that is known"


def test_the_decay_grows_with_the_uploads_up_to_the_half_life() -> None:
    found = [decay_of(k, 138.0) for k in range(3000)]
    assert found[:3] == [0.1, 2 / 11, 3 / 12] and found == sorted(found)
    assert found[-1] == pytest.approx(0.995, abs=2e-5) and found[-1] ** 138 == pytest.approx(0.5)
    assert found.index(found[-1]) == pytest.approx(1790, abs=20)


def test_it_follows_its_equation() -> None:
    average, k = np.ones(SIZE, np.float64), 0
    for state, model in followed("fedasync", 60):
        d = min(0.5 ** (1 / HALF_LIFE), (1 + k) / (10 + k))
        average, k = d * average + (1 - d) * model, k + 1
        assert state.average == pytest.approx(average, rel=1e-5) and state.average.dtype == np.float32
        assert (state.uploads, state.decay) == (k, 1.0)


@pytest.mark.parametrize(("name", "each"), [("fedbuff", 3), ("fedavg", 4)])
def test_a_change_that_stands_for_several_uploads_decays_by_all_of_theirs(name: str, each: int) -> None:
    before = np.ones(SIZE, np.float64)
    for number, (state, model) in enumerate(followed(name, 24)):
        if number % each != each - 1:
            assert state.average == pytest.approx(before, rel=1e-5) and state.decay < 1.0, "the model has not changed"
            continue
        d = np.prod([decay_of(k, HALF_LIFE) for k in range(number + 1 - each, number + 1)])
        before = d * before + (1 - d) * model
        assert state.average == pytest.approx(before, rel=1e-5) and state.decay == 1.0


@pytest.mark.parametrize("name", RULES)
@given(stop=st.integers(0, 23))
def test_it_goes_on_with_the_same_bits_from_what_was_held(name: str, stop: int) -> None:
    rule, whole = averaged(name), followed(name, 24)
    state, model = whole[stop]
    held = rule.hold(state, model)
    state = rule.restore(Held(json.loads(json.dumps(held.form)), [np.array(array) for array in held.arrays]), model)
    for number, upload in list(enumerate(uploads(24)))[stop + 1 :]:
        state, model = rule.apply(state, model, upload)
        if is_synchronous(name) and number % 4 == 3:
            state, model = rule.close_round(state, model)
    assert same_bits(rule.hold(state, model), rule.hold(*whole[-1]))


@pytest.mark.parametrize("name", RULES)
def test_vectors_of_pytorch_stay_there_and_give_the_same_numbers(name: str) -> None:
    for (here, _), (there, _) in zip(followed(name, 24), followed(name, 24, torch.from_numpy), strict=True):
        assert isinstance(there.average, torch.Tensor)
        assert in_memory(there.average) == pytest.approx(here.average, rel=1e-5)


def test_no_state_but_the_first_is_the_one_that_a_run_begins_with() -> None:
    rule, model = averaged(), np.ones(SIZE, np.float32)
    state = rule.init(model)
    assert rule.is_initial(rule.hold(state, model), model) and rule.served(state, model) is model
    state, model = rule.apply(state, model, uploads(1)[0])
    assert not rule.is_initial(rule.hold(state, model), model)


def training(name: str, **changes: Any) -> Any:
    base: dict[str, Any] = {"learning.dataset": "digits", "learning.executor": "serial", "learning.model": "linear"}
    base |= {
        "learning.average": "ema",
        "run.rounds": 40,
        "fleet.devices": 6,
        "fleet.channels": 3,
        "learning.evaluate_every_s": 1.0,
    }
    return load_config(overrides={**base, **RULES[name], **changes})


@pytest.mark.parametrize("name", NAMES)
def test_a_run_killed_in_any_round_ends_with_the_same_files(name: str, tmp_path: Path) -> None:
    config = training(name)
    whole = simulate(config, out=tmp_path / "whole")
    assert whole.evaluations[-1].plain_test_loss not in (None, whole.evaluations[-1].test_loss)
    for killed in (1, 18, 39):

        def stop(selections: int, killed: int = killed) -> None:
            if selections >= killed:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            simulate(config, out=tmp_path / str(killed), checkpoint_every_s=0.0, progress=stop)
        resume(tmp_path / str(killed))
        for file in FILES:
            assert (tmp_path / str(killed) / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), (killed, file)


@pytest.mark.parametrize("name", NAMES)
def test_averaging_moves_no_model_that_devices_download(name: str, tmp_path: Path) -> None:
    runs = [simulate(training(name, **{"learning.average": how}), out=tmp_path / how) for how in ("ema", "none")]
    ema, none = ([*run.evaluations] for run in runs)
    assert [(one.plain_test_loss, one.plain_test_metric) for one in ema] == [(one.test_loss, one.test_metric) for one in none]
    assert all(one.plain_test_loss is None and one.plain_test_metric is None for one in none)
    assert ema[0].test_loss == none[0].test_loss and ema[-1].test_loss != none[-1].test_loss
    assert "plain_test_loss" in runs[0].summary.as_dict() and "plain_test_loss" not in runs[1].summary.as_dict()
    assert not (tmp_path / "none" / "model-plain.safetensors").exists()
