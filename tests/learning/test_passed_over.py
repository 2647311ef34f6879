"""A setting that changes nothing in a run is told of; and what a rule says it reads is what it reads."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, LearningConfig, load_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.specs.checking import check
from fedtwin.learning.aggregation import Aggregator, Upload, aggregation_of, load_aggregator, mixing_of, no_state
from fedtwin.learning.aggregation.base import SETTINGS_READ
from fedtwin.learning.passed_over import passed_over, passed_over_among
from fedtwin.live.run.settable import check_settable
from fedtwin.registry import AGGREGATORS
from fedtwin.sim import simulate
from fedtwin.testing import check_aggregator


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 20, "learning.evaluate_every_s": 10.0}
    return load_config(overrides={**base, **changes})


def learning(**changes: Any) -> Config:
    return training(**{f"learning.{key}": value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"mixing": 0.4, "staleness_exponent": 0.3}, None),
        ({"buffer_size": 3}, "learning.buffer_size = 3 is not of aggregation = 'fedasync'"),
        ({"aggregation": "fedbuff", "buffer_size": 3, "mixing": 0.4}, None),
        ({"aggregation": "fadas", "mixing": 0.4}, "learning.mixing = 0.4 is not of aggregation = 'fadas'"),
        ({"aggregation": "window", "staleness": "hinge"}, "learning.staleness = 'hinge' is not of aggregation = 'window'"),
        ({"hinge_a": 3.0}, "learning.hinge_a = 3 is of staleness = 'hinge', not of 'polynomial'"),
        ({"staleness": "hinge", "hinge_a": 3.0}, None),
        ({"staleness": "hinge", "staleness_exponent": 0.3}, "staleness_exponent = 0.3 is of staleness = 'polynomial'"),
        ({"dirichlet_gamma": 0.1}, "learning.dirichlet_gamma = 0.1 is of partition = 'dirichlet', not of 'iid'"),
        ({"dirichlet_gamma": 0.1, "partition": "dirichlet"}, None),
        ({"average_half_life": 9.0}, "learning.average_half_life = 9 is of average = 'ema'"),
        ({"average_half_life": 9.0, "average": "ema"}, None),
        ({"dirichlet_gamma": 0.1, "buffer_size": 3}, "; learning.buffer_size = 3"),
    ],
)
def test_what_changes_nothing_is_one_sentence(changes: dict[str, Any], told: str | None) -> None:
    sentence = passed_over(learning(**changes))
    if told is None:
        assert sentence is None
    else:
        assert sentence is not None and told in sentence and sentence.startswith("Without effect: ")
        assert sentence.count(". ") == 0 and sentence.endswith(".")


def test_a_synchronous_scheme_reads_nothing_of_mixing() -> None:
    sentence = passed_over(training(**{"run.mode": "sync", "learning.mixing": 0.4}))
    assert sentence == "Without effect: learning.mixing = 0.4 is not of aggregation = 'fedavg'."


def test_a_run_a_check_and_a_batch_say_it() -> None:
    config = learning(buffer_size=3)
    with pytest.warns(FedtwinWarning, match=r"^Without effect: learning\.buffer_size = 3 is not of aggregation = 'fedasync'"):
        simulate(config)
    assert [sentence for sentence in check(config) if sentence.startswith("Without effect")]
    other = config.model_copy(update={"run": config.run.model_copy(update={"seed": 4})})
    with pytest.warns(FedtwinWarning) as told:
        run_batch([Job(config), Job(other), Job(training())])
    assert [str(one.message).startswith("Without effect") for one in told] == [True], "each sentence once"


def test_a_rule_that_cannot_be_had_is_the_affair_of_its_run() -> None:
    unknown = learning(aggregation="nowhere_to_be_found:RULE", buffer_size=3)
    assert passed_over_among([unknown, learning(), learning(buffer_size=3)]) == [passed_over(learning(buffer_size=3))]


@pytest.mark.parametrize("name", AGGREGATORS)
def test_what_a_rule_says_it_reads_is_what_it_reads(name: str) -> None:
    """Asked through every staleness function; ``learner`` and edge server take the word of the rules for it."""
    rule, seen = load_aggregator(name), set()
    for staleness in ("constant", "polynomial", "hinge"):
        told = mixing_of(LearningConfig(staleness=staleness, buffer_size=2), rule)

        class Noting(SimpleNamespace):
            def __getattribute__(self, key: str) -> Any:
                seen.add(key)
                return super().__getattribute__(key)

        settings: Any = Noting(**told._asdict())
        model = np.ones(4, np.float32)
        state = rule.init(model, settings)
        for number in range(5):
            weights = model + np.float32(0.1 * number)
            upload = Upload(model if rule.needs_start else None, weights, number, 10.0, number % 3, number)
            state, new = rule.apply(state, model, upload, settings)
            model = model if new is None else new
            if rule.close_round is not None and number % 2:
                state, _ = rule.close_round(state, model, settings)
    assert seen & set(SETTINGS_READ) == set(rule.reads)


def halves(state: Any, model: Any, upload: Upload, settings: Any) -> Any:
    return state, (1.0 - settings.mixing) * model + settings.mixing * upload.weights


def test_a_rule_of_ones_own_is_held_to_what_it_says_it_reads() -> None:
    check_aggregator(Aggregator(no_state, halves))
    check_aggregator(Aggregator(no_state, halves, reads=("mixing",)))
    sentence = r"fails in apply: AttributeError: settings\.mixing is not among the rule's reads = \('buffer_size',\) \(.*line"
    with pytest.raises(FedtwinError, match=sentence):
        check_aggregator(Aggregator(no_state, halves, reads=("buffer_size",)))


def by_place(state: Any, model: Any, upload: Upload, settings: Any) -> Any:
    mixing, *_ = settings
    return state, (1.0 - mixing) * model + mixing * upload.weights


def by_number(state: Any, model: Any, upload: Upload, settings: Any) -> Any:
    return state, (1.0 - settings[0]) * model + settings[0] * upload.weights


def as_dictionary(state: Any, model: Any, upload: Upload, settings: Any) -> Any:
    mixing = settings._asdict()["mixing"]
    return state, (1.0 - mixing) * model + mixing * upload.weights


@pytest.mark.parametrize("apply", [by_place, by_number, as_dictionary])
def test_a_rule_that_says_what_it_reads_reads_it_by_name(apply: Any) -> None:
    """By their places it would see all of them."""
    check_aggregator(Aggregator(no_state, apply))
    sentence = r"fails in apply: TypeError: the settings are read by name: a rule with reads = \('mixing',\) .*line"
    with pytest.raises(FedtwinError, match=sentence):
        check_aggregator(Aggregator(no_state, apply, reads=("mixing",)))


def test_what_a_rule_of_ones_own_does_with_a_staleness_is_its_own_affair(tmp_path: Path) -> None:
    """It may look at ``hinge_a`` in a function of its own, whatever ``staleness`` says."""
    (tmp_path / "mine.py").write_text(
        "from fedtwin.learning.aggregation import Aggregator, no_state\n"
        "def apply(state, model, upload, settings):\n"
        "    return state, model + (upload.weights - model) / (1.0 + settings.hinge_a)\n"
        "RULE = Aggregator(no_state, apply, reads=('hinge_a',))\n"
    )
    config = training(**{"code.folder": str(tmp_path), "learning.aggregation": "mine:RULE", "learning.hinge_a": 3.0})
    assert passed_over(config) is None and passed_over(learning(hinge_a=3.0)) is not None
    check_settable(config, "learning.hinge_a", 4.0)


def test_a_rule_of_ones_own_is_believed_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedtwin.learning.aggregation import Aggregator, no_state\n"
        "def apply(state, model, upload, settings):\n    return state, 0.5 * model + 0.5 * upload.weights\n"
        "ALL = Aggregator(no_state, apply)\nNONE = Aggregator(no_state, apply, reads=())\n"
    )
    here = {"code.folder": str(tmp_path), "learning.mixing": 0.4}
    silent, loud = (training(**here, **{"learning.aggregation": f"mine:{which}"}) for which in ("ALL", "NONE"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(silent)
    with pytest.warns(FedtwinWarning, match=r"learning\.mixing = 0\.4 is not of aggregation = 'mine:NONE'"):
        simulate(loud)
    assert aggregation_of(loud).reads == ()


@pytest.mark.parametrize("reads", [("mixin",), "mixing", ["mixing"], ("own",)])
def test_what_cannot_be_read_is_a_sentence(reads: Any) -> None:
    with pytest.raises(FedtwinError, match=r"^reads = .* is not allowed: it must be a tuple of some of mixing, staleness, "):
        Aggregator(no_state, halves, reads=reads)
