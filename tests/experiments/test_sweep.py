import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from fedtwin.config import identity_of, load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.backends import MOST_RUNS_IN_A_CHUNK, LocalBackend, in_chunks, open_backend
from fedtwin.experiments.batches.batch import Job
from fedtwin.experiments.batches.job import Done, Packed, pack
from fedtwin.experiments.batches.journal import locked
from fedtwin.experiments.sweep import Sweep, sweep, sweep_runs
from fedtwin.records.checksums import require_as_written
from fedtwin.sim import run_summary, simulate
from tests.conftest import FEDTWIN, hears_interrupts, run_cli, until, write_slow_policy

SPEC = """
schemes = ["CU-UCB", "Sy-fairness"]
seeds = [7, 3]
rounds = 60

[config.radio]
max_power_w = 0.8

[grid]
"objective.min_mean_samples" = [1.5, 0.5]
fleet.channels = [5, 15]
"""
LONG = 'schemes = ["slow:POLICY"]\nseeds = 15\nrounds = 40\n[grid]\n"policy.v" = [1e4, 1e5]\n'


def sweep_in(folder: Path, text: str = SPEC, out: str = "out", **options: bool) -> Sweep:
    (folder / "spec.toml").write_text(text, encoding="utf-8")
    return Sweep(folder / "spec.toml", folder / out, **options)


def bytes_of(sweep: Sweep, workers: int = 1) -> bytes:
    path = sweep.run(workers=workers).path
    assert path is not None
    return path.read_bytes()


def test_rows_stand_in_the_order_of_the_grid_and_equal_direct_runs(tmp_path: Path) -> None:
    table = pd.read_parquet(sweep_in(tmp_path).run(workers=1).path)
    places = list(product((1.5, 0.5), (5, 15), ("CU-UCB", "Sy-fairness"), (7, 3)))
    assert list(table.columns[:4]) == ["objective.min_mean_samples", "fleet.channels", "scheme", "seed"]
    assert [tuple(row) for row in table.iloc[:, :4].itertuples(index=False)] == places
    for k, (least, channels, scheme, seed) in enumerate(places):
        settings = {"objective.min_mean_samples": least, "fleet.channels": channels, "run.seed": seed, "run.rounds": 60}
        config = load_config(overrides={**settings, "policy.name": scheme, "radio.max_power_w": 0.8})
        row = {name: None if pd.isna(value) else value for name, value in table.iloc[k].items()}
        expected = run_summary(config, simulate(config, records=False).summary, identity_of(config))
        assert {name: row[name] for name in expected} == expected
        assert set(row) == {*expected, "objective.min_mean_samples", "fleet.channels", "failed"} and row["failed"] is None


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    text = SPEC.replace("[7, 3]", "8").replace("rounds = 60", "rounds = 600")
    files = [bytes_of(sweep_in(tmp_path, text, f"out{workers}"), workers) for workers in (1, 2)]
    assert files[0] == files[1]


def test_the_folder_holds_the_spec_and_nothing_unfinished(tmp_path: Path) -> None:
    sweep_in(tmp_path).run(workers=1)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["SHA256SUMS", "summaries.parquet", "sweep.toml"]
    require_as_written(tmp_path / "out", "summaries.parquet", "sweep.toml")
    assert (tmp_path / "out" / "sweep.toml").read_text() == SPEC


def test_runs_in_which_everybody_declined_are_rows_without_means(tmp_path: Path) -> None:
    text = 'schemes = ["CU-UCB"]\nseeds = 2\nrounds = 20\n[config.objective]\nmax_energy_j = 0.01\n'
    table = pd.read_parquet(sweep_in(tmp_path, text).run(workers=1).path)
    assert list(table["rounds"]) == [0, 0] and table["mean_cost"].isna().all() and table["mean_cost"].dtype == "float64"
    assert table["failed"].str.contains("objective.max_energy_j = 0.01 is too tight", regex=False).all()


def test_training_runs_have_their_accuracy_in_the_table(tmp_path: Path) -> None:
    text = 'schemes = ["Random"]\nseeds = 1\nrounds = 20\n[config.learning]\nexecutor = "serial"\n[grid]\n'
    table = pd.read_parquet(sweep_in(tmp_path, text + '"learning.mixing" = [0.2, 0.9]\n').run(workers=1).path)
    assert table["test_accuracy"].nunique() == 2


def test_files_are_looked_for_beside_the_spec_and_shown_as_written(tmp_path: Path) -> None:
    for name, devices in (("few.csv", 4), ("many.csv", 9)):
        rows = [f"{50 + k},80,2e9" for k in range(devices)]
        (tmp_path / name).write_text("\n".join(["distance_m,samples,cpu_hz", *rows]))
    text = 'schemes = ["CU-UCB"]\nseeds = 1\nrounds = 20\n[config.fleet]\nchannels = 2\n[grid]\n'
    table = pd.read_parquet(sweep_in(tmp_path, text + '"fleet.file" = ["few.csv", "many.csv"]\n').run(workers=1).path)
    assert list(table["fleet.file"]) == ["few.csv", "many.csv"]


def test_a_finished_sweep_is_overwritten_only_when_told(tmp_path: Path) -> None:
    sweep_in(tmp_path).run(workers=1)
    with pytest.raises(FedtwinError, match="finished sweep already"):
        sweep_in(tmp_path)
    text = SPEC.replace("[7, 3]", "[4]")
    assert set(pd.read_parquet(sweep_in(tmp_path, text, overwrite=True).run(workers=1).path)["seed"]) == {4}


def test_a_finished_sweep_of_other_code_says_so(tmp_path: Path) -> None:
    text = 'schemes = ["mine:POLICY", "CU-UCB"]\nseeds = 2\nrounds = 20\n'
    source = "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: {}, power='max')\n"
    (tmp_path / "mine.py").write_text(source.format("view.samples"))
    sweep_in(tmp_path, text).run(workers=1)
    with pytest.raises(FedtwinError, match=r"holds a finished sweep already: name another"):
        sweep_in(tmp_path, text)
    (tmp_path / "mine.py").write_text(source.format("-view.samples"))
    with pytest.raises(FedtwinError, match=r"2 of these 4 runs are not in it \(settings or code have changed since\)"):
        sweep_in(tmp_path, text)


def test_from_python_a_sweep_is_a_dict_and_needs_no_folder(tmp_path: Path) -> None:
    spec = {"schemes": ["CU-UCB"], "seeds": [3, 1], "rounds": 30, "grid": {"fleet.channels": [5, 15]}}
    found = sweep(spec, workers=1)
    assert len(found) == 4 and found.path is None and found.failures is None
    assert list(found.to_pandas()["seed"]) == [3, 1, 3, 1] and not any(tmp_path.iterdir())
    kept = sweep(spec, out=tmp_path / "out", workers=1)
    assert kept.table.equals(found.table)
    assert sweep(tmp_path / "out" / "sweep.toml", workers=1).table.equals(found.table)


def test_a_second_object_does_not_replace_what_the_first_has_finished(tmp_path: Path) -> None:
    first, second = sweep_in(tmp_path), sweep_in(tmp_path, SPEC.replace("[7, 3]", "[4]"))
    table = bytes_of(first)
    with pytest.raises(FedtwinError, match="finished sweep already"):
        second.run(workers=1)
    assert (tmp_path / "out" / "summaries.parquet").read_bytes() == table
    assert (tmp_path / "out" / "sweep.toml").read_text() == SPEC and not (tmp_path / "out" / "unfinished.jsonl").exists()


def test_an_overwriting_sweep_that_is_killed_leaves_the_finished_one_whole(tmp_path: Path) -> None:
    sweep_in(tmp_path).run(workers=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    killed_midway(tmp_path, "--overwrite")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    assert run_cli("sweep", "long.toml", "--out", "out", "--overwrite", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out" / "sweep.toml").read_text() == LONG


def killed_midway(folder: Path, *arguments: str) -> list[str]:
    """Starts a sweep, kills it after some runs, and gives the lines of its journal."""
    write_slow_policy(folder)
    (folder / "long.toml").write_text(LONG, encoding="utf-8")
    journal = folder / "out" / "unfinished.jsonl"
    process = subprocess.Popen(
        [*FEDTWIN, "sweep", "long.toml", "--out", "out", *arguments],
        cwd=folder,
        start_new_session=True,
        preexec_fn=hears_interrupts,
    )
    until(lambda: journal.exists() and len(journal.read_text().splitlines()) >= 4, "four runs", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (folder / "slow").unlink()
    return [line for line in journal.read_text().splitlines() if line.endswith("}")]


def test_a_killed_sweep_goes_on_and_neither_loses_nor_repeats_a_run(tmp_path: Path) -> None:
    finished = killed_midway(tmp_path)
    assert 4 <= len(finished) < 30 and not (tmp_path / "out" / "summaries.parquet").exists()
    os.link(tmp_path / "out" / "unfinished.jsonl", tmp_path / "journal")
    again = run_cli("sweep", "long.toml", "--out", "out", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr.startswith(f"Going on: {len(finished)} of 30 runs are finished already.\n")
    lines = [line for line in (tmp_path / "journal").read_text().splitlines() if line.endswith("}")]
    assert lines[: len(finished)] == finished and len(lines) == len({json.loads(line)["key"] for line in lines}) == 30
    fresh = run_cli("sweep", "long.toml", "--out", "fresh", cwd=tmp_path)
    assert fresh.returncode == 0
    assert (tmp_path / "out" / "summaries.parquet").read_bytes() == (tmp_path / "fresh" / "summaries.parquet").read_bytes()


def test_a_changed_spec_keeps_the_runs_that_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    first, unfinished = sweep_in(tmp_path), tmp_path / "out" / "unfinished.jsonl"
    journal = tmp_path / "journal"
    journal.touch()
    os.link(journal, unfinished)
    first.run(workers=1)
    os.link(journal, unfinished)
    (tmp_path / "out" / "summaries.parquet").unlink()
    changed = sweep_in(tmp_path, SPEC.replace("[7, 3]", "[3, 5]"))
    said: list[str] = []
    changed.run(workers=1, say=said.append)
    assert said == ["Going on: 8 of 16 runs are finished already, and 8 finished ones are not of this sweep any more."]
    assert len({json.loads(line)["key"] for line in journal.read_text().splitlines() if line}) == 24
    assert "[3, 5]" in (tmp_path / "out" / "sweep.toml").read_text()


def test_two_commands_do_not_write_one_folder(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path)
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out" / ".lock"), pytest.raises(FedtwinError, match="another fedtwin"):
        sweep.run(workers=1)


BAD = {
    "unknown part": ("colour = 1", "colour is not a part of a sweep: allowed are schemes, seeds, rounds, config, grid"),
    "TOML": ("schemes = [", "is not valid TOML"),
    "scheme": ('schemes = ["Best"]', "schemes = ['Best'] is not allowed: 'Best' is unknown, choose from cu-ucb"),
    "policy that cannot be loaded": ('schemes = ["no.such:POLICY"]', "policy.name = 'no.such:POLICY' cannot be loaded"),
    "no seed": ("seeds = 0", "seeds = 0 is not allowed: it must be how many seeds"),
    "seed of text": ('seeds = ["a"]', "seeds = ['a'] is not allowed"),
    "rounds": ("rounds = 0", "rounds = 0 is not allowed"),
    "unknown setting": ('[grid]\n"fleet.chanels" = [5]', "fleet.chanels is not a setting (did you mean channels?)"),
    "not a setting": ("[grid]\nchannels = [5]", "channels = 5 is not a setting"),
    "value": ('[grid]\n"radio.bandwidth_hz" = [1e6, -1.0]', "radio.bandwidth_hz = -1.0 is not allowed: it must be"),
    "last combination": (
        '[grid]\n"fleet.devices" = [40, 20]\n"fleet.channels" = [5, 30]',
        "channels = 30 is more than devices",
    ),
    "no list": ('[grid]\n"fleet.channels" = 5', "fleet.channels = 5 must be a list of values"),
    "twice": (
        '[grid]\n"fleet.channels" = [5]\nfleet.channels = [6]',
        "fleet.channels is there twice, with its name in quotes and without",
    ),
    "empty list": ('[grid]\n"fleet.channels" = []', "fleet.channels = [] must be a list of values"),
    "mixed list": ('[grid]\n"fleet.channels" = [5, "a"]', "fleet.channels = [5, 'a'] must be all numbers or all text"),
    "seed in the grid": ('[grid]\n"run.seed" = [1]', "run.seed is not for a sweep's config or grid: say seeds"),
    "policy in the base": ('[config.policy]\nname = "random"', "policy.name is not for a sweep's config or grid: say schemes"),
    "rounds twice": ('rounds = 5\n[grid]\n"run.rounds" = [1]', "rounds = 5 and run.rounds in the grid contradict"),
    "same run twice": ('schemes = ["CU-UCB", "cu-ucb"]', "the same run twice, as CU-UCB, seed 0 and as cu-ucb, seed 0"),
    "base that is a number": ("config = 3", "config = 3 is not allowed: it must be a section of settings."),
    "section that is a number": ("[config]\nrun = 3", "config.run = 3 is not allowed: it must be a section of settings."),
    "schemes that are no list": ('schemes = "CU-UCB"', "schemes = 'CU-UCB' is not allowed: it must be a list."),
    "scheme that is a number": ("schemes = [3]", "schemes.0 = 3 is not allowed: it must be text."),
    "too many": ("seeds = 900000", "The sweep has 4,500,000 runs: 1,000,000 are allowed"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_spec_is_one_sentence_before_any_run(tmp_path: Path, name: str) -> None:
    text, sentence = BAD[name]
    with pytest.raises(FedtwinError) as error:
        sweep_in(tmp_path, text)
    assert sentence in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_spec_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"The sweep '.*nowhere\.toml' cannot be read"):
        sweep_runs(tmp_path / "nowhere.toml")


def test_without_ray_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FedtwinError, match=r"--ray local needs Ray: pip install 'fedtwin\[ray\]'"), open_backend(ray="local"):
        pass


def test_a_backend_without_gpus_is_asked_before_anything_is_run_or_written(tmp_path: Path) -> None:
    class WithoutGpus(LocalBackend):
        def require_gpus(self) -> None:
            raise FedtwinError("there is none")

    sweep = sweep_in(tmp_path, 'seeds = 1\n[config.learning]\nexecutor = "cuda"\n')
    with pytest.raises(FedtwinError, match="there is none"):
        sweep.run(backend=WithoutGpus(1))
    assert not (tmp_path / "out").exists()


def test_chunks_grow_while_runs_are_short_and_every_run_is_done_once() -> None:
    """A backend of two workers that do a run in a millisecond, without running anything."""
    runs = [pack(Job(load_config(overrides={"run.seed": seed, "run.rounds": 10}))) for seed in range(3000)]
    sizes: list[int] = []
    waiting: dict[int, Done] = {}

    def submit(chunk: Sequence[Packed]) -> int:
        sizes.append(len(chunk))
        waiting[len(sizes)] = ([{"key": packed["key"]} for packed in chunk], 1e-3 / (10 * 30))
        return len(sizes)

    def collect(flying: set[int]) -> tuple[list[Done], set[int]]:
        first = min(flying)
        return [waiting.pop(first)], flying - {first}

    done = [line["key"] for lines in in_chunks(runs, lambda: 2, submit, collect) for line in lines]
    assert sorted(done) == sorted(packed["key"] for packed in runs)
    assert sizes[:4] == [1, 1, 1, 1] and 90 <= max(sizes) <= 100 < MOST_RUNS_IN_A_CHUNK and sizes[-1] == 1


def test_a_scheme_brings_its_mode_to_the_settings_that_need_it() -> None:
    spec = {"schemes": ["Sy-fairness"], "seeds": 1, "rounds": 60, "grid": {"run.sync_timeout_s": [0.6, 0.9]}}
    assert [point.config.run.sync_timeout_s for point in sweep_runs(spec)[0]] == [0.6, 0.9]
    with pytest.raises(FedtwinError, match="sync_timeout_s"):
        sweep_runs({**spec, "schemes": ["CU-UCB"]})


def test_settings_of_a_policy_go_to_the_schemes_that_declare_them(tmp_path: Path) -> None:
    text = "from typing import NamedTuple\nfrom fedtwin.policies import Policy\n"
    text += "class Own(NamedTuple):\n    factor: float = 1.0\n"
    score = "def score(view, knobs):\n    return knobs.settings.factor * view.queue\n"
    (tmp_path / "mine.py").write_text(f"{text}{score}POLICY = Policy(score, power='max', settings=Own)\n")
    path = tmp_path / "grid.toml"
    path.write_text(
        'schemes = ["mine:POLICY", "CU-UCB"]\nseeds = 1\nrounds = 40\ngrid = { "policy.v" = [1e4, 1e5] }\n'
        "[config.policy.settings]\nfactor = -2.0\n"
    )
    settings = [(point.scheme, dict(point.config.policy.settings)) for point in sweep_runs(path)[0]]
    assert settings == 2 * [("mine:POLICY", {"factor": -2.0}), ("CU-UCB", {})]


def test_settings_that_a_policy_does_not_declare_are_told_before_the_first_run() -> None:
    with pytest.raises(FedtwinError, match=r"CU-UCB, seed 0: policy\.settings\.memory is not a setting"):
        sweep_runs({"schemes": ["CU-UCB"], "seeds": 1, "rounds": 60, "grid": {"policy.settings.memory": [0.1, 0.5]}})
