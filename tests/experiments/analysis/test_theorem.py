"""The bound of Theorem 1, term by term."""

import pytest

from fedtwin.config import Config, load_config
from fedtwin.experiments.analysis.theorem import theorem_1_terms
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.learning.probe import Constants

FOUND = Constants(a1=4.0, a2=9.0, beta=1.0, moved2=1.0)


def training(**changes: object) -> Config:
    return load_config(overrides={"learning.dataset": "digits", "learning.learning_rate": 0.5, **changes})


def test_the_terms_are_those_printed() -> None:
    config = training(**{"fleet.samples_min": 2, "fleet.samples_max": 3, "learning.mixing": 0.25})
    terms = theorem_1_terms(config, FOUND, loss_fallen=6.0, max_staleness=7, rounds=10)
    first = 6.0 / (0.25 * 0.5 * 10 * 2)
    second = 0.5 * 3**3 / 2 * 9.0
    third = 0.25 * 7 * 3 / 2 * 6.0
    fourth = 0.25**2 * 0.5 * 7**2 * 3**2 / 2 * 9.0
    fifth = 0.5 * 7**2 * 3**2 / 2 * 9.0
    assert terms == pytest.approx((first, second, third, fourth, fifth))


def test_only_the_first_term_falls_with_the_rounds_and_more_samples_lift_the_others() -> None:
    few, many = training(), training(**{"fleet.samples_min": 200, "fleet.samples_max": 200})
    short, long = (theorem_1_terms(few, FOUND, loss_fallen=1.0, max_staleness=9, rounds=rounds) for rounds in (10, 1000))
    larger = theorem_1_terms(many, FOUND, loss_fallen=1.0, max_staleness=9, rounds=1000)
    assert long[0] < short[0] and long[1:] == short[1:]
    assert larger[0] < long[0] and larger[1] > long[1] and larger[3] > long[3] and larger[4] > long[4]


def test_a_batch_brings_the_constants_of_a_run_and_the_run_stays_what_it_is() -> None:
    config = training(**{"run.rounds": 30, "learning.learning_rate": 0.05, "learning.record_gradient": True})
    probed, plain = run_batch([Job(config, constants=True), Job(config)], workers=1)
    assert probed.summary == plain.summary and probed.evaluations == plain.evaluations
    assert plain.constants is None and probed.constants is not None and probed.constants.a1 > 0.0
