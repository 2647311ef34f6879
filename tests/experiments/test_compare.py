from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

import fedtwin
from fedtwin import Policy
from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.compare import compare, compare_folders
from fedtwin.experiments.specs.schemes import label, scheme_config
from fedtwin.records.checksums import require_as_written
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


@pytest.mark.slow
def test_training_runs_are_compared_by_accuracy_too() -> None:
    base = load_config(overrides={**SMALL, "learning.dataset": "digits"})
    report = compare(base, ["CU-UCB", "Random"], seeds=2, workers=2)
    assert all(0 < means["test_accuracy"] < 1 for means in report.as_dict()["schemes"].values())
    assert report == compare(base, ["CU-UCB", "Random"], seeds=2, workers=1), "no number depends on the workers"


def test_a_config_a_file_and_a_dict_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[run]\nrounds = 40\nseed = 3\n")
    config = load_config(tmp_path / "c.toml")
    sources: list[Any] = [config, tmp_path / "c.toml", str(tmp_path / "c.toml"), {"run": {"rounds": 40, "seed": 3}}]
    found = [compare(source, "CU-UCB, random", seeds=2, workers=1) for source in sources]
    found.append(compare(schemes=["CU-UCB", "random"], settings={"run.rounds": 40}, seeds=[3, 4], workers=1))
    assert all(one == found[0] for one in found[1:]) and list(found[0].summaries["CU-UCB"]) == [3, 4]


def test_a_row_per_scheme_and_seed_is_written_beside_the_comparison(tmp_path: Path) -> None:
    heard: list[int] = []
    found = compare(SMALL, ["CU-UCB", "Random"], seeds=3, out=tmp_path / "out", workers=1, progress=heard.append)
    names = ["SHA256SUMS", "comparison.json", "runs.csv", "runs.parquet"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names and sum(heard) == 6
    require_as_written(tmp_path / "out", *names[1:])
    table = found.to_pandas()
    assert table.equals(pd.read_parquet(tmp_path / "out" / "runs.parquet")) and len(table) == 6
    assert list(pd.read_csv(tmp_path / "out" / "runs.csv")["mean_cost"]) == list(table["mean_cost"])
    with pytest.raises(FedtwinError, match="holds a comparison already"):
        compare(SMALL, ["CU-UCB"], out=tmp_path / "out")


def test_what_cannot_be_compared_is_told_before_any_run(tmp_path: Path) -> None:
    for bad, sentence in (
        ({"metrics": "test_accuracy"}, "train a model"),
        ({"schemes": [3]}, "3 is not a scheme"),
        ({"schemes": []}, "names none"),
        ({"seeds": 0}, "seeds = 0"),
        ({"settings": {"run.round": 3}}, r"run\.round is not a setting"),
    ):
        with pytest.raises(FedtwinError, match=sentence):
            compare(SMALL, out=tmp_path / "out", **bad)
    assert not (tmp_path / "out").exists()


def test_time_and_energy_to_an_accuracy_are_paired(tmp_path: Path) -> None:
    base = {**SMALL, "learning.dataset": "digits", "learning.executor": "serial", "learning.evaluate_every_s": 0.5}
    names = ["CU-UCB", "Random"]
    runs = {name: simulate(scheme_config(load_config(overrides=base), name), out=tmp_path / name) for name in names}
    accuracy = min(max(one.test_accuracy or 0.0 for one in run.evaluations) for run in runs.values())
    found = compare(base, names, seeds=1, accuracy=accuracy, workers=1)
    assert found.metrics == ("mean_cost", "time_to_accuracy_s", "energy_to_accuracy_j")
    for name, run in runs.items():
        first = next(one for one in run.evaluations if (one.test_accuracy or 0.0) >= accuracy)
        assert found.summaries[name][0]["time_to_accuracy_s"] == first.clock_s
        assert found.summaries[name][0]["energy_to_accuracy_j"] == first.energy_j
    again = compare([tmp_path / "CU-UCB", tmp_path / "Random"], accuracy=accuracy)
    assert again.summaries == found.summaries
    for metric in found.metrics:
        assert repr(again.paired(metric)) == repr(found.paired(metric)), "as text: one seed has no interval, and NaN is not NaN"


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


class Own(NamedTuple):
    factor: float = 1.0


def test_settings_of_a_policy_go_to_the_schemes_that_declare_them() -> None:
    def score(view: Any, knobs: Any) -> float:
        return float(knobs.settings.factor * view.queue)

    schemes: list[str | Policy] = [Policy(score, power="optimal", settings=Own), "Random"]
    found = fedtwin.compare({"run.rounds": 40, "policy.settings.factor": -2.0}, schemes, seeds=1)
    assert [name.partition(" ")[2] for name in found.summaries] == ["factor=-2.0", ""]
    with pytest.raises(fedtwin.FedtwinError, match=r"policy\.settings\.facto is not a setting"):
        fedtwin.compare({"run.rounds": 40, "policy.settings.facto": -2.0}, schemes, seeds=1)


def test_policies_are_compared_as_objects_too(tmp_path: Path) -> None:
    def made_here(factor: float) -> Policy:
        return Policy(lambda view, knobs: factor * view.queue + knobs.v * view.mean_cost, power="optimal")

    settings = {"run.rounds": 60}
    found = fedtwin.compare(settings, [made_here(-1.0), made_here(1.0), "CU-UCB"], seeds=2)
    assert len(found.summaries) == 3 and len(found.rows) == 6
    alone = fedtwin.simulate({**settings, "run.seed": 1}, policy=made_here(1.0)).summary.mean_cost
    name = next(name for name in found.summaries if found.summaries[name][1]["mean_cost"] == alone)
    assert name.startswith("object:")
    with pytest.raises(fedtwin.FedtwinError, match="keeps the source of its code"):
        fedtwin.compare(settings, [made_here(1.0)], seeds=2, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(fedtwin.FedtwinError, match="A figure takes schemes by name"):
        fedtwin.figure("3", schemes=[made_here(1.0)])  # type: ignore[list-item]


@pytest.mark.parametrize("seeds", [0, -1, "3", [], [1.5], [True]])
def test_seeds_are_how_many_or_which(seeds: Any) -> None:
    with pytest.raises(FedtwinError, match="it must be how many seeds, at least 1, or a list of seeds"):
        compare({"run.rounds": 5}, ["CU-UCB"], seeds=seeds)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"seeds": 3}, "seeds is for running"),
        ({"seeds": [0]}, "seeds is for running"),
        ({"schemes": ["Random"], "workers": 2}, "schemes and workers are for running"),
        ({"settings": {"run.rounds": 5}}, r"settings \(--set, --rounds, --seed\) is for running"),
        ({"ray": "local"}, "ray is for running"),
    ],
)
def test_what_folders_cannot_heed_is_refused_beside_them(tmp_path: Path, given: dict[str, Any], named: str) -> None:
    simulate(SMALL, out=tmp_path / "run")
    for folders in (tmp_path / "run", [tmp_path / "run"], fedtwin.open_run(tmp_path / "run")):
        with pytest.raises(FedtwinError, match=f"{named}, and run folders are compared as they are"):
            compare(folders, **given)


def test_one_run_that_was_opened_is_compared_like_its_folder(tmp_path: Path) -> None:
    simulate(SMALL, out=tmp_path / "run")
    run = fedtwin.open_run(tmp_path / "run")
    assert compare(run) == compare([run]) == compare(tmp_path / "run") == compare((str(tmp_path / "run"),))


@pytest.mark.parametrize("how", ["settings", "file", "file of a synchronous scheme", "dictionary"])
def test_a_timeout_goes_to_the_schemes_with_synchronous_rounds(tmp_path: Path, how: str) -> None:
    file, settings = tmp_path / "my.toml", {}
    text = "[run]\nrounds = 60\n" + ("" if how == "settings" else "sync_timeout_s = 0.6\n")
    file.write_text(text + ('[policy]\nname = "Sy-fairness"\n' if "scheme" in how else ""), encoding="utf-8")
    if how == "settings":
        settings = {"run.sync_timeout_s": 0.6}
    source: Any = {"run": {"rounds": 60, "sync_timeout_s": 0.6}} if how == "dictionary" else file
    found = compare(source, ["CU-UCB", "Sy-fairness"], seeds=1, settings=settings, metrics="drops,wasted_energy_j", workers=1)
    one, other = found.summaries.values()
    assert one[0]["drops"] == one[0]["wasted_energy_j"] == 0 and other[0]["drops"] > 0
    assert found.paired("drops")[0].mean_difference == -other[0]["drops"]
    report = found.as_dict()["schemes"]
    assert [means["drops"] for means in report.values()] == [0, other[0]["drops"]]


def test_a_timeout_that_nobody_has_rounds_for_is_refused() -> None:
    with pytest.raises(FedtwinError, match="sync_timeout_s"):
        compare({"run.rounds": 60}, ["CU-UCB"], seeds=1, settings={"run.sync_timeout_s": 0.6})
