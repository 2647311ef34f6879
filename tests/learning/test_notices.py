"""A rule that gathers more uploads than its run has never changes the model: that is said when it begins, and at the end."""

from pathlib import Path
from typing import Any

import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinWarning
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.specs.checking import check
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.notices import never_gathered
from fedtwin.sim import simulate


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 12, "learning.evaluate_every_s": 10.0}
    return load_config(overrides={**base, "learning.aggregation": "fedbuff", **changes})


@pytest.mark.parametrize("rule", ["fedbuff", "ca2fl", "fadas"])
@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({}, 12),
        ({"live.time_scale": 1.0, "fleet.channels": 3}, 15),
        ({"run.rounds": 7}, 7),
    ],
)
def test_a_buffer_that_is_larger_than_the_run_is_told_of(rule: str, changes: dict[str, Any], most: int) -> None:
    fits = training(**changes, **{"learning.aggregation": rule, "learning.buffer_size": most})
    assert never_gathered(fits, aggregation_of(fits)) is None
    config = training(**changes, **{"learning.aggregation": rule, "learning.buffer_size": most + 1})
    sentence = never_gathered(config, aggregation_of(config))
    assert sentence is not None and f"buffer_size = {most + 1} is more than the {most} uploads that the run" in sentence
    assert rule in sentence


def test_a_rule_that_gathers_nothing_is_not_told_of(tmp_path: Path) -> None:
    """Of your own one reads all settings unless it says otherwise."""
    plain = training(**{"learning.aggregation": "fedasync", "learning.buffer_size": 50})
    assert never_gathered(plain, aggregation_of(plain)) is None
    (tmp_path / "mine.py").write_text(
        "from fedtwin.learning.aggregation import Aggregator, no_state\n"
        "RULE = Aggregator(no_state, lambda state, model, upload, settings: (state, upload.weights))\n"
    )
    here = {"code.folder": str(tmp_path), "learning.aggregation": "mine:RULE", "run.rounds": 5}
    for buffer_size, is_told in ((10, False), (6, True), (5, False)):
        mine = training(**here, **{"learning.buffer_size": buffer_size})
        assert (never_gathered(mine, aggregation_of(mine)) is not None) is is_told


def test_a_simulation_says_it_when_it_begins_and_when_it_ends() -> None:
    with pytest.warns(FedtwinWarning) as told:
        simulate(training(**{"learning.buffer_size": 50}))
    first, last = (str(one.message) for one in told)
    assert first.startswith("learning.buffer_size = 50 is more than the 12 uploads that the run asks for: ")
    assert last.startswith("The model never changed: 12 uploads came, ")
    simulate(training(**{"learning.buffer_size": 12}))  # warnings are errors here


def test_a_check_and_a_batch_say_it_once() -> None:
    config = training(**{"learning.buffer_size": 50})
    assert [sentence for sentence in check(config) if "is more than the 12 uploads" in sentence]
    other = config.model_copy(update={"run": config.run.model_copy(update={"seed": 4})})
    with pytest.warns(FedtwinWarning) as told:
        run_batch([Job(config), Job(other), Job(training())])
    assert ["is more than the 12 uploads" in str(one.message) for one in told] == [True]
