"""The real command line, in processes of its own."""

import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from fedtwin import __version__
from tests.conftest import Cli

RUN_KEYS = {
    *("mean_cost", "mean_time_s", "mean_energy_j", "virtual_time_s", "rounds", "declines"),
    *("least_mean_samples", "total_queue"),
}
PLAN_KEYS = {
    *("power_w", "min_power_w", "max_power_w", "feasible", "reason", "time_s", "energy_j", "cost"),
}


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout.strip() == __version__
    helped = cli("--help")
    assert helped.returncode == 0
    assert all(command in helped.stdout for command in ("run", "compare", "sweep", "figure", "power", "config"))


def test_run_prints_json_and_is_quiet_when_not_a_terminal(cli: Cli) -> None:
    done = cli("run", "--rounds", 50, "--json")
    assert done.returncode == 0 and done.stderr == ""
    report = json.loads(done.stdout)
    assert report.keys() >= RUN_KEYS and report["rounds"] == 50


def test_run_writes_a_folder_and_a_table(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", "--rounds", 50, "--policy", "Sy-fairness", "--seed", 4, "--out", "run", "--trace")
    assert done.returncode == 0 and "Sy-fairness, seed 4" in done.stdout and "mean cost" in done.stdout
    rounds = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    assert {"available", "queues", "indices"} <= set(rounds.columns) and len(rounds.queues[0]) == 30


def test_run_takes_a_file_and_settings(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[run]\nrounds = 40\n[policy]\nname = 'random'\n")
    report = json.loads(cli("run", "c.toml", "--set", "policy.power=optimal", "--json").stdout)
    assert (report["rounds"], report["scheme"], report["power"]) == (40, "Random (optimal power)", "optimal")


def test_compare_prints_json_with_the_promised_keys(cli: Cli) -> None:
    done = cli("compare", "--seeds", 2, "--rounds", 60, "--json")
    report = json.loads(done.stdout)
    assert list(report["schemes"]) == ["CU-UCB", "As-Q-only", "As-fairness", "Sy-fairness", "Random"]
    assert all(means.keys() >= RUN_KEYS for means in report["schemes"].values())
    assert {"first", "second", "mean_difference", "low", "high", "p_value"} <= report["paired"][0].keys()


def test_schemes_are_found_whatever_the_case(cli: Cli) -> None:
    report = json.loads(cli("compare", "--schemes", "cu-ucb,sy-fairness", "--seeds", 1, "--rounds", 30, "--json").stdout)
    assert list(report["schemes"]) == ["CU-UCB", "Sy-fairness"]
    assert report["schemes"]["CU-UCB"]["mean_cost_low"] is None, "one seed has no interval"


def test_a_policy_of_ones_own_is_found_in_the_working_folder_and_hashed(cli: Cli, tmp_path: Path) -> None:
    source = "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: {}, power='optimal')\n"
    hashes = set()
    for score in ("view.samples", "-view.samples"):
        (tmp_path / "mine.py").write_text(source.format(score))
        hashes.add(json.loads(cli("run", "--policy", "mine:POLICY", "--rounds", 20, "--json").stdout)["config_hash"])
    assert len(hashes) == 2, "a changed policy is another run"


def test_compare_prints_tables(cli: Cli) -> None:
    done = cli("compare", "--seeds", 2, "--rounds", 60, "--schemes", "CU-UCB,genie")
    assert done.returncode == 0 and "CU-UCB − genie" in done.stdout


def test_compare_pairs_the_metrics_it_is_asked_for_and_keeps_a_row_per_run(cli: Cli, tmp_path: Path) -> None:
    command = ["compare", "--seeds", 2, "--rounds", 60, "--schemes", "CU-UCB,Random"]
    metrics = ["--metric", "mean_energy_j", "--metric", "mean_staleness"]
    done = cli(*command, *metrics, "--out", "kept")
    assert done.returncode == 0 and done.stderr == ""
    assert all(f"Paired differences of {name}, world by world" in done.stdout for name in metrics[1::2])
    table = pd.read_csv(tmp_path / "kept" / "runs.csv").pivot(index="seed", columns="scheme", values="mean_energy_j")
    report = json.loads((tmp_path / "kept" / "comparison.json").read_text())
    (pair,) = [pair for pair in report["paired"] if pair["metric"] == "mean_energy_j"]
    assert pair["mean_difference"] == pytest.approx((table["CU-UCB"] - table["Random"]).mean())
    assert [pair["metric"] for pair in report["paired"]] == ["mean_energy_j", "mean_staleness"]


@pytest.mark.slow
@pytest.mark.parametrize(("average", "told"), [("ema", True), ("none", False), ("auto", False)])
def test_a_printout_says_which_model_was_evaluated(cli: Cli, average: str, *, told: bool) -> None:
    settings = ["--set", "learning.dataset=digits", "--set", "learning.executor=serial", "--set", f"learning.average={average}"]
    done = cli("run", "--rounds", 20, *settings)
    assert done.returncode == 0 and "accuracy on the test set" in done.stdout
    assert ("accuracy on the test set, averaged model" in done.stdout) == told


def test_compare_says_which_runs_never_reach_an_accuracy(cli: Cli) -> None:
    settings = ["--set", "learning.dataset=digits", "--set", "learning.executor=serial", "--accuracy", 1.0]
    done = cli("compare", "--seeds", 1, "--rounds", 20, "--schemes", "CU-UCB,Random", *settings)
    assert done.returncode == 0 and "Paired differences of time_to_accuracy_s" in done.stdout
    sentence = "CU-UCB with seed 0 (1 of 1 runs); Random with seed 0 (1 of 1 runs) never reached the accuracy 1"
    assert [line.partition(": ")[2].partition(": ")[2] for line in done.stderr.splitlines()] == [
        f"{sentence}; their pairs are left out."
    ] * 2


def test_plot_draws_runs(cli: Cli, tmp_path: Path) -> None:
    for seed in (0, 1):
        assert cli("run", "--seed", seed, "--rounds", 60, "--out", f"run{seed}").returncode == 0
    done = cli("plot", "run0", "run1", "--against", "energy", "--out", "pictures/both.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "pictures/both.svg\n", "")
    assert "CU-UCB, seed 1" in (tmp_path / "pictures" / "both.svg").read_text(encoding="utf-8")
    assert cli("plot", "run0", "--out", "pictures/both.svg").returncode == 2


def test_a_figure_with_a_policy_of_ones_own_stands_beside_the_usual_one(cli: Cli, tmp_path: Path) -> None:
    source = "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: view.samples, power='optimal')\n"
    (tmp_path / "mine.py").write_text(source)
    changes = ["--schemes", "CU-UCB,mine:POLICY", "--set", "run.rounds=20", "--set", "radio.max_power_w=0.8"]
    done = cli("figure", "3", "--profile", "quick", "--out", "pictures", *changes)
    assert done.returncode == 0, done.stderr
    png, svg, table = done.stdout.split()
    assert all(name.startswith("pictures/figure_3-") for name in (png, svg, table))
    assert "radio.max_power_w = 0.8" in (tmp_path / svg).read_text(encoding="utf-8")
    assert set(pd.read_csv(tmp_path / table)["scheme"]) == {"CU-UCB", "mine:POLICY"}


def test_compare_reads_run_folders(cli: Cli) -> None:
    for name in ("CU-UCB", "Random"):
        for seed in (0, 1):
            assert cli("run", "--policy", name, "--seed", seed, "--rounds", 60, "--out", f"{name}{seed}").returncode == 0
    from_folders = cli("compare", "CU-UCB0", "CU-UCB1", "Random0", "Random1", "--json")
    rerun = cli("compare", "--schemes", "CU-UCB,Random", "--seeds", 2, "--rounds", 60, "--json")
    assert from_folders.returncode == 0 and from_folders.stdout == rerun.stdout


def test_power_explains_itself_in_words(cli: Cli) -> None:
    case = ("--cpu-hz", 2e9, "--samples", 80)
    assert "no constraint binds" in cli("power", "--gain", 1e-12, *case).stdout
    assert "max_time_s binds" in cli("power", "--gain", 1e-15, *case).stdout
    assert "max_power_w binds" in cli("power", "--gain", 1e-12, *case, "--set", "objective.energy_weight=0").stdout
    changes = ("--set", "objective.energy_weight=0", "--set", "radio.max_power_w=30")
    assert "max_energy_j binds" in cli("power", "--gain", 1e-12, *case, *changes).stdout
    assert "declines (energy-limit)" in cli("power", "--gain", 1e-19, *case).stdout
    assert "declines (power-limit)" in cli("power", "--gain", 1e-12, *case, "--set", "radio.max_power_w=1e-4").stdout


def test_power_prints_json_with_null_for_infinity(cli: Cli) -> None:
    feasible = json.loads(cli("power", "--gain", 1e-12, "--cpu-hz", 2e9, "--samples", 80, "--json").stdout)
    assert feasible.keys() >= PLAN_KEYS and feasible["feasible"] and math.isclose(feasible["power_w"], 0.104544, rel_tol=1e-4)
    declined = json.loads(cli("power", "--gain", 1e-12, "--cpu-hz", 1e8, "--samples", 80, "--json").stdout)
    assert declined["reason"] == "compute-time" and declined["power_w"] == 0
    assert declined["time_s"] is declined["energy_j"] is declined["cost"] is None


def test_config_show_check_and_schema(cli: Cli) -> None:
    shown = cli("config", "show", "--set", "run.rounds=7", "--policy", "Sy-fairness")
    settings = tomllib.loads(shown.stdout)
    assert (
        settings["run"].items() >= {"mode": "sync", "rounds": 7, "seed": 0}.items() and settings["policy"]["name"] == "fairness"
    )
    checked = cli("config", "check", "--set", "objective.min_mean_samples=4")
    assert checked.returncode == 0 and checked.stdout.startswith("valid: CU-UCB")
    assert checked.stderr.startswith("warning: objective.min_mean_samples = 4 cannot be met") and "2.834" in checked.stderr
    assert "bandwidth_hz" in json.dumps(json.loads(cli("config", "schema").stdout))


def test_figure_writes_pictures_and_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("figure", "5", "--profile", "quick", "--out", "pictures")
    assert done.returncode == 0
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["figure_5.csv", "figure_5.png", "figure_5.svg"]
    part = cli("figure", "5", "--profile", "quick", "--out", "more", "--runs", "1")
    assert part.returncode == 4 and "Not finished: 1 of " in part.stderr and "the same command goes on" in part.stderr
    refused = cli("figure", "5", "--profile", "quick", "--out", "pictures")
    assert refused.returncode == 2 and "exists already" in refused.stderr


def test_sweep_writes_one_row_per_run_and_overwrites_only_when_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('seeds = 2\nrounds = 30\n[grid]\n"fleet.channels" = [5, 15]\n')
    done = cli("sweep", "s.toml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "20 runs: out/sweeps/s/summaries.parquet\n", "")
    table = pd.read_parquet(tmp_path / "out" / "sweeps" / "s" / "summaries.parquet")
    assert len(table) == 20 and table.groupby(["fleet.channels", "scheme"]).size().eq(2).all()
    refused = cli("sweep", "s.toml")
    assert refused.returncode == 2 and "holds a finished sweep already" in refused.stderr
    assert cli("sweep", "s.toml", "--overwrite", "--workers", 2).returncode == 0


BAD = {
    "negative bandwidth": (["run", "--set", "radio.bandwidth_hz=-1"], "radio.bandwidth_hz = -1"),
    "unknown policy": (["run", "--policy", "best"], "policy.name = 'best'"),
    "policy that cannot be loaded": (["run", "--policy", "no.such:POLICY"], "policy.name = 'no.such:POLICY'"),
    "channels > devices": (["run", "--set", "fleet.channels=31"], "channels = 31"),
    "NaN": (["run", "--set", "objective.max_time_s=nan"], "objective.max_time_s = nan"),
    "corrupt TOML": (["run", "corrupt.toml"], "not valid TOML"),
    "no such TOML": (["run", "nowhere.toml"], "nowhere.toml"),
    "folder exists": (["run", "--rounds", "5", "--out", "there"], "exists already"),
    "folder cannot be written": (["run", "--rounds", "5", "--out", "corrupt.toml/x"], "cannot be written"),
    "CSV without a column": (["run", "--set", "fleet.file=bad.csv"], "no column cpu_hz"),
    "rounds": (["run", "--rounds", "0"], "run.rounds = 0"),
    "--set without a value": (["run", "--set", "run.rounds"], "section.key=value"),
    "trace without out": (["run", "--trace"], "--trace needs --out"),
    "gain": (["power", "--gain", "-1", "--cpu-hz", "1e9", "--samples", "80"], "gain = -1.0"),
    "power without a gain": (["power", "--cpu-hz", "1e9", "--samples", "80"], "--gain"),
    "figure": (["figure", "10"], "figure '10' is unknown"),
    "scheme": (["compare", "--schemes", "CU-UCB,Best", "--rounds", "5"], "policy.name = 'Best'"),
    "no scheme": (["compare", "--schemes", " , "], "schemes = ' , ' names none"),
    "no selection": (
        ["compare", "--schemes", "CU-UCB", "--seeds", "2", "--rounds", "20", "--set", "objective.max_energy_j=0.01"],
        "Nobody was selected",
    ),
    "options beside folders": (["compare", "there", "--rounds", "5"], "run folders are compared as they are"),
    "seeds beside folders": (["compare", "there", "--seeds", "3"], "seeds is for running"),
    "workers beside folders": (["compare", "there", "--workers", "1"], "workers is for running"),
    "resume of nothing": (["run", "--resume", "nowhere"], "is not the folder of an unfinished run"),
    "resume with a setting": (["run", "--resume", "there", "--seed", "0"], "stands alone"),
    "a policy's name that is none": (["run", "--policy", ".:x"], "policy.name = '.:x' cannot be loaded"),
    "model that is none": (["config", "check", "--set", "learning.model=best"], "learning.model = 'best' is unknown"),
    "comparison of no run": (["compare", "there", "there2"], "not the folder of a run"),
    "metric": (["compare", "--metric", "mean_costs"], "metric 'mean_costs' is unknown (did you mean mean_cost?)"),
    "metric of a training": (["compare", "--metric", "test_accuracy"], "there is no [learning] section"),
    "accuracy of nothing": (["compare", "--accuracy", "0.9"], "there is no [learning] section"),
    "figure in no time": (["figure", "3", "--minutes", "0"], "minutes = 0.0 is not allowed"),
    "swept setting": (["figure", "3", "--set", "objective.min_mean_samples=1"], "it is what the figure sweeps"),
    "scheme of a figure": (["figure", "3", "--schemes", "Best"], "policy.name = 'Best'"),
    "plot of no run": (["plot", "there"], "'there' is not the folder of a run"),
    "plot of no kind": (["plot", "there", "--out", "plot.gif"], "must end in .png or .svg"),
    "sweep of nothing": (["sweep", "nowhere.toml"], "The sweep 'nowhere.toml' cannot be read"),
    "sweep that is no TOML": (["sweep", "corrupt.toml"], "not valid TOML"),
    "sweep of an impossible setting": (["sweep", "sweep.toml"], "[fleet] channels = 31 is more than devices = 30"),
    "sweep by no worker": (["sweep", "sweep.toml", "--workers", "0"], "--workers"),
    "unknown command": (["train"], "train"),
    "unknown option": (["run", "--round", "5"], "--round"),
}


def test_what_is_per_synchronous_round_is_marked_beside_asynchronous_schemes(cli: Cli) -> None:
    arguments = ["compare", "--seeds", "1", "--rounds", "60", "--workers", "1", "--schemes"]
    both = cli(*arguments, "CU-UCB,Sy-fairness").stdout.splitlines()
    marked = [line.count("*") for line in both if line.strip().startswith(("CU-UCB ", "Sy-fairness "))]
    assert marked[:2] == [0, 2], both
    assert sum(line.strip().startswith("* per synchronous round, of up to M selections") for line in both) == 1, both
    assert "*" not in cli(*arguments, "CU-UCB,Random").stdout and "*" not in cli(*arguments, "Sy-fairness").stdout


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(cli: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "corrupt.toml").write_text("[run\nrounds = 3")
    (tmp_path / "bad.csv").write_text("distance_m,samples\n50,80\n")
    (tmp_path / "sweep.toml").write_text('rounds = 5\n[grid]\n"fleet.channels" = [5, 31]\n')
    (tmp_path / "there").mkdir()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    arguments, sentence = BAD[name]
    done = cli(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.rglob("*")) == before, "nothing was written"


def test_a_policy_that_fails_is_one_sentence_and_exit_code_2_and_its_rows_are_kept(cli: Cli, tmp_path: Path) -> None:
    score = "lambda view, knobs: ([1.0] * 40)[view.round]"
    (tmp_path / "failing.py").write_text(f"from fedtwin.policies import Policy\nPOLICY = Policy({score}, power='max')\n")
    settings = ("--policy", "failing:POLICY", "--rounds", 100, "--set", "run.engine=readable")
    done = cli("run", *settings, "--out", "run")
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.splitlines()) == 1
    assert "policy.name = 'failing:POLICY' failed in round 40 for device" in done.stderr
    assert f"IndexError: list index out of range ({tmp_path / 'failing.py'}, line 2)" in done.stderr
    assert pd.read_parquet(tmp_path / "run" / "rounds.parquet")["round"].max() == 39


def test_an_interruption_is_an_exit_code_wherever_it_passed_through(tmp_path: Path) -> None:
    """Python ends itself by the signal, after ``-m``, when one came while a named tuple was made, although it was caught."""
    (tmp_path / "interrupted.py").write_text(
        "from fedtwin.cli import app, main\napp.app = lambda **_: exec('raise KeyboardInterrupt')\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
