"""A run that charges less than it does says so in one sentence, and one that charges what it does says nothing."""

import warnings
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinWarning
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.specs.checking import check
from fedtwin.formulas.power import plan_power
from fedtwin.learning.charges import undercharged
from fedtwin.sim import simulate

MLP_BITS = 32 * (64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10)
RESNET_BITS = 32 * (11_172_810 + 2 * 4_800) + 64 * 20
"""Of grey images: 1,152 parameters fewer than for CIFAR-10; running means and variances; a counter for each normalisation."""


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 20, "learning.evaluate_every_s": 10.0}
    return load_config(overrides={**base, **changes})


@pytest.mark.parametrize(
    ("changes", "bits", "told"),
    [
        ({}, 0, []),
        ({}, 16_000_000, []),
        ({}, 16_000_001, ["1.6e+07 bits", "radio.update_bits = 8e+06"]),
        ({"learning.local_epochs": 3}, 8_000_000, ["learning.local_epochs = 3", "compute.cycles_per_sample"]),
        ({"learning.local_epochs": 3, "learning.charge_epochs": True}, 8_000_000, []),
        ({"learning.local_epochs": 2}, 10**9, ["1e+09 bits", "learning.local_epochs = 2"]),
        ({"learning.local_epochs": 2, "live.heartbeat_s": 5.0}, 10**9, []),
    ],
)
def test_what_is_told(changes: dict[str, Any], bits: int, told: list[str]) -> None:
    sentence = undercharged(training(**changes), bits)
    assert (sentence is None) == (not told)
    assert all(part in (sentence or "") for part in told)
    assert (sentence or "").count(". ") == 0, "one sentence"


def test_a_run_a_check_and_a_batch_say_it_of_the_real_network() -> None:
    config = training(**{"radio.update_bits": MLP_BITS / 2.01, "objective.max_time_s": 5.0})
    with pytest.warns(FedtwinWarning, match=r"'mlp' has 2.87e\+05 bits, and radio.update_bits = 142806 are charged"):
        simulate(config)
    assert [sentence for sentence in check(config) if "are charged" in sentence]
    with pytest.warns(FedtwinWarning, match=r"are charged\. \(2 of 3 runs\.\)"):
        run_batch(
            [Job(config), Job(config.model_copy(update={"run": config.run.model_copy(update={"seed": 4})})), Job(training())]
        )


def test_a_run_that_charges_what_it_does_says_nothing() -> None:
    config = training(**{"radio.update_bits": MLP_BITS, "learning.local_epochs": 2, "learning.charge_epochs": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(config)
        run_batch([Job(config)])
    assert check(config) == []


def test_a_resnet_is_told_of_with_all_that_it_uploads() -> None:
    sentences = check(training(**{"learning.model": "resnet18"}))
    assert len(sentences) == 1 and f"'resnet18' has {RESNET_BITS:.3g} bits" in sentences[0]
    assert check(training(**{"learning.model": "resnet18", "radio.update_bits": float(RESNET_BITS)})) == []


def test_charged_epochs_are_as_many_times_the_cycles() -> None:
    changes = {"objective.max_time_s": 3.0, "objective.max_energy_j": 3.0}
    trained = simulate(training(**changes, **{"learning.local_epochs": 3, "learning.charge_epochs": True})).rounds
    plain = {"compute.cycles_per_sample": 1.5e7, "run.rounds": 20, "run.engine": "compiled"}
    assert trained.drop_columns(["train_loss"]).equals(simulate(load_config(overrides={**changes, **plain})).rounds)
    once = simulate(training(**changes)).rounds
    assert np.all(np.asarray(trained["compute_s"]) > 2.0 * np.asarray(once["compute_s"]).min())


def test_planned_power_pays_for_every_epoch() -> None:
    charged = plan_power(training(**{"learning.local_epochs": 3, "learning.charge_epochs": True}), 1e-12, 2e9, 80)
    assert charged == plan_power(training(**{"compute.cycles_per_sample": 1.5e7}), 1e-12, 2e9, 80)
    assert charged.time_s > plan_power(training(), 1e-12, 2e9, 80).time_s


def test_the_hash_is_as_it_was_unless_epochs_are_charged() -> None:
    assert config_hash(training(**{"learning.charge_epochs": False})) == config_hash(training())
    assert config_hash(training(**{"learning.charge_epochs": True})) != config_hash(training())
    assert config_hash(load_config(overrides={"learning.dataset": "digits", "learning.average": "none"})) == "929cbe75620f7ca6"
