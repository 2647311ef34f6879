"""A run that charges less than it does says so in one sentence, and one that charges what it does says nothing."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.compare import comparison_jobs
from fedtwin.experiments.specs.checking import check
from fedtwin.experiments.sweep import sweep_runs
from fedtwin.formulas.power import plan_power
from fedtwin.formulas.terms import terms_of
from fedtwin.learning.charges import charged, undercharged
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
        ({"learning.local_epochs": 2, "live.heartbeat_s": 5.0}, 10**9, ["1e+09 bits"]),  # simulated, whatever boards would do
    ],
)
def test_what_is_told(changes: dict[str, Any], bits: int, told: list[str]) -> None:
    sentence = undercharged(training(**changes), bits)
    assert (sentence is None) == (not told)
    assert all(part in (sentence or "") for part in told)
    assert (sentence or "").count(". ") == 0, "one sentence"


def test_a_run_a_check_and_a_batch_say_it_of_the_real_network() -> None:
    changes = {"radio.update_bits": MLP_BITS / 2.01, "objective.max_time_s": 5.0}
    config, of_boards = training(**changes), training(**changes, **{"live.heartbeat_s": 5.0})
    with pytest.warns(FedtwinWarning, match=r"'mlp' has 2.87e\+05 bits, and radio.update_bits = 142806 are charged"):
        simulate(config)
    assert [sentence for sentence in check(config) if "are charged" in sentence]
    assert not [sentence for sentence in check(of_boards) if "are charged" in sentence], "boards measure what they spend"
    with pytest.warns(FedtwinWarning, match=r"are charged\. \(2 of 3 runs\.\)"):
        run_batch(
            [Job(config), Job(config.model_copy(update={"run": config.run.model_copy(update={"seed": 4})})), Job(training())]
        )


def test_the_least_that_any_device_pays_is_what_is_told_of(tmp_path: Path) -> None:
    """Devices may have their own: ``radio.update_bits`` is then not what they pay."""
    file = tmp_path / "mine.csv"
    file.write_text("distance_m,samples,cpu_hz,update_bits\n50,80,1e9,8e6\n60,80,1e9,1e5\n", encoding="utf-8")
    of_a_file = training(**{"fleet.file": str(file), "fleet.channels": 1})
    drawn = training(**{"fleet.update_bits": [1e6, 9e6], "radio.update_bits": "model"})
    for config, told in ((of_a_file, "update_bits of fleet.file = 100000"), (drawn, r"fleet.update_bits = 1e\+06")):
        sentence = undercharged(config, 10**7)
        assert sentence is not None and re.search(rf"has 1e\+07 bits, and {told} are charged", sentence)
    assert undercharged(of_a_file, 200_000) is None and undercharged(drawn, 2_000_000) is None
    assert undercharged(training(**{"radio.update_bits": "model"}), 10**9) is None


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


OF_THE_MODEL = {"radio.update_bits": "model", "objective.max_time_s": 5.0}


def test_the_bits_of_the_model_are_as_if_they_had_been_stated() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        worked_out = simulate(training(**OF_THE_MODEL))
        stated = simulate(training(**{**OF_THE_MODEL, "radio.update_bits": float(MLP_BITS)}))
    assert worked_out.config == stated.config and worked_out.identity == stated.identity
    assert worked_out.summary == stated.summary and worked_out.rounds.equals(stated.rounds)
    assert worked_out.devices["update_bits"].to_pylist() == 30 * [MLP_BITS]
    upload_s, nats = (np.asarray(worked_out.rounds[key]) for key in ("upload_s", "power_w"))
    rate = 1e6 * np.log2(1.0 + nats * np.asarray(worked_out.rounds["gain"]) / 10.0**-18.4)
    assert np.allclose(upload_s, MLP_BITS / rate)


def test_the_folder_of_a_run_has_the_number(tmp_path: Any) -> None:
    done = simulate(training(**OF_THE_MODEL), out=tmp_path / "run")
    assert load_config(tmp_path / "run" / "config.toml").radio.update_bits == MLP_BITS
    assert config_hash(load_config(tmp_path / "run" / "config.toml")) == done.identity.hash


def test_comparisons_sweeps_and_checks_have_the_number_too() -> None:
    config = training(**OF_THE_MODEL)
    assert {job.config.radio.update_bits for job in comparison_jobs(config, ["CU-UCB", "Sy-fairness"], 2)} == {MLP_BITS}
    spec = {"config": {"radio": {"update_bits": "model"}}, "grid": {"learning.model": ["mlp", "linear"]}, "rounds": 5}
    spec = {**spec, "schemes": ["CU-UCB"], "seeds": [1]}
    _, jobs = sweep_runs(spec)
    assert [job.config.radio.update_bits for job in jobs] == [MLP_BITS, 32 * 650]
    assert check(config) == []
    (outcome,) = run_batch([Job(config)])
    assert outcome.failed is None and outcome.summary["config_hash"] == config_hash(charged(config))


def test_bits_of_a_model_without_one_are_one_sentence() -> None:
    with pytest.raises(FedtwinError, match=r"^radio.update_bits = 'model' needs a \[learning\] section"):
        simulate({"radio.update_bits": "model"})
    with pytest.raises(FedtwinError, match=r"^radio.update_bits = 'model' is not known before"):
        plan_power(training(**OF_THE_MODEL), 1e-12, 2e9, 80)
    with pytest.raises(FedtwinError, match=r"^radio.update_bits = 'modell' is not allowed: a number is needed, or 'model'.$"):
        training(**{"radio.update_bits": "modell"})
    with pytest.raises(FedtwinError, match=r"^radio.update_bits = -1 is not allowed: it must be greater than 0.$"):
        training(**{"radio.update_bits": -1})
    assert terms_of(charged(training(**OF_THE_MODEL))).update_bits == MLP_BITS
    assert charged(training()) == training()
