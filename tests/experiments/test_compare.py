from pathlib import Path

import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.compare import compare, compare_folders
from fedtwin.experiments.specs.schemes import label, scheme_config
from fedtwin.registry import SCHEMES
from fedtwin.sim import simulate

SMALL = {"run.rounds": 90}


def test_schemes_and_pairs() -> None:
    comparison = compare(SMALL, list(SCHEMES), seeds=3, workers=1)
    report = comparison.as_dict()
    assert list(report["schemes"]) == list(SCHEMES)
    assert len(report["paired"]) == 10
    first = report["paired"][0]
    costs = [[run["mean_cost"] for run in comparison.summaries[name].values()] for name in ("CU-UCB", "As-Q-only")]
    assert first["mean_difference"] == pytest.approx(sum(a - b for a, b in zip(*costs, strict=True)) / 3)
    assert report["schemes"]["Random"]["rounds"] == 90 and report["schemes"]["Random"]["seeds"] == 3


def test_training_runs_are_compared_by_accuracy_too() -> None:
    base = load_config(overrides={**SMALL, "learning.dataset": "digits"})
    report = compare(base, ["CU-UCB", "Random"], seeds=2, workers=2)
    assert all(0 < means["test_accuracy"] < 1 for means in report.as_dict()["schemes"].values())
    assert report == compare(base, ["CU-UCB", "Random"], seeds=2, workers=1), "no number depends on the workers"


def test_folders_give_the_same_comparison_without_running(tmp_path: Path) -> None:
    base = load_config(overrides=SMALL)
    folders = []
    for name in ("CU-UCB", "Sy-fairness"):
        for seed in range(3):
            config = scheme_config(load_config(overrides={**SMALL, "run.seed": seed}), name)
            folders.append(tmp_path / f"{name}-{seed}")
            simulate(config, out=folders[-1])
    from_folders = compare_folders(folders).as_dict()
    assert from_folders == compare(base, ["CU-UCB", "Sy-fairness"], seeds=3, workers=1).as_dict()


def test_folders_of_different_worlds_are_not_compared(tmp_path: Path) -> None:
    simulate(load_config(overrides=SMALL), out=tmp_path / "a")
    simulate(load_config(overrides={**SMALL, "radio.bandwidth_hz": 2e6, "policy.name": "random"}), out=tmp_path / "b")
    simulate(load_config(overrides={**SMALL, "run.seed": 9, "policy.name": "random"}), out=tmp_path / "c")
    with pytest.raises(FedtwinError, match=r"radio\.bandwidth_hz is 2000000\.0 in one and 1000000\.0 in the other"):
        compare_folders([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(FedtwinError, match=r"share no run\.seed"):
        compare_folders([tmp_path / "a", tmp_path / "c"])
    with pytest.raises(FedtwinError, match="is there twice"):
        compare_folders([tmp_path / "a", tmp_path / "a"])


def test_folders_that_trained_and_those_that_did_not_are_not_compared(tmp_path: Path) -> None:
    simulate(load_config(overrides=SMALL), out=tmp_path / "plain")
    learned = {**SMALL, "policy.name": "random", "learning.dataset": "digits", "learning.executor": "serial"}
    simulate(load_config(overrides=learned), out=tmp_path / "learned")
    for folders in (["plain", "learned"], ["learned", "plain"]):
        with pytest.raises(FedtwinError, match=r"learning\."):
            compare_folders([tmp_path / name for name in folders])


def test_labels_tell_settings_apart() -> None:
    assert label(Config(), "CU-UCB") == "CU-UCB"
    changed = load_config(overrides={"policy.v": 1e4, "policy.bonus_scale": 0.5})
    assert label(changed, "CU-UCB") == "CU-UCB v=10000.0 bonus_scale=0.5"


def test_a_policy_name_keeps_the_mode_of_the_base() -> None:
    sync = load_config(overrides={"run.mode": "sync"})
    assert scheme_config(sync, "cu-ucb").run.mode == "sync"
    assert scheme_config(sync, "CU-UCB").run.mode == "async"
