"""The net under compiled code of the user's own: what it does otherwise than what is written is found while it runs."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import CannotCompileError, EnginesDifferError, FedtwinError, FedtwinWarning
from fedtwin.sim import Result, simulate
from fedtwin.sim.fast import run as fast
from fedtwin.sim.fast import watch
from tests.conftest import mostly_slow

OF_QUEUES = """import math
{more}
from fedtwin.policies import Policy

def score(view, knobs):
    return {score}

def lead(ahead, behind, gap, knobs):
    return {lead}

POLICY = Policy(score, power="max", lead=lead if {has_lead} else None)
"""


Settings = dict[str, Any]
LARGE: Settings = {"fleet.devices": 500, "fleet.channels": 20, "objective.min_mean_samples": 0.1}


def configured(
    folder: Path,
    *,
    score: str,
    lead: str = "0.0",
    has_lead: bool = False,
    more: str = "",
    settings: dict[str, Any] | None = None,
) -> Config:
    (folder / "mine.py").write_text(OF_QUEUES.format(score=score, lead=lead, has_lead=has_lead, more=more))
    (folder / "mine.toml").write_text("[policy]\nname = 'mine:POLICY'\n")
    return load_config(folder / "mine.toml", {"run.rounds": 300, **(settings or {})})


def by(config: Config, engine: str, **options: Any) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("error" if engine == "compiled" else "ignore", FedtwinWarning)
        return simulate(config.model_copy(update={"run": config.run.model_copy(update={"engine": engine})}), **options)


@pytest.mark.slow
def test_a_policy_of_ones_own_is_looked_at_in_64_rounds_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[watch.Watch] = []

    class Kept(watch.Watch):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            watches.append(self)

    monkeypatch.setattr(fast, "Watch", Kept)
    config = configured(tmp_path, score="-view.queue * view.samples + math.sqrt(view.round)")
    assert by(config, "compiled").rounds.equals(by(config, "readable").rounds)
    assert watches[0].looks >= 64
    by(load_config(overrides={"run.rounds": 300}), "compiled")
    assert len(watches) == 1, "built-in policies are not watched"


def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Numba compiled a square root wrongly."""
    from fedtwin.compiling import guarded

    module = type(guarded.compiled_math())("math")
    vars(module).update(vars(guarded.compiled_math()))
    module.sqrt = guarded.compiled_function("fabs")  # type: ignore[attr-defined]
    monkeypatch.setattr(guarded, "compiled_math", lambda: module)


@pytest.mark.slow
def test_a_difference_stops_compiled_and_starts_auto_again_readably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTWIN_CACHE", str(tmp_path / "cache"))
    broken(monkeypatch)
    config = configured(tmp_path, score="-view.queue + math.sqrt(view.samples)")
    with pytest.raises(
        EnginesDifferError, match=r"'mine:POLICY' decides otherwise when it is compiled \(round 1: the score of"
    ):
        by(config, "compiled", out=tmp_path / "compiled")
    auto = config.model_copy(update={"run": config.run.model_copy(update={"rounds": 40_000})})
    with pytest.warns(FedtwinWarning, match=r"decides otherwise .* It starts again that way now"):
        result = simulate(auto, out=tmp_path / "auto")
    assert result.rounds.equals(by(auto, "readable").rounds)


@pytest.mark.parametrize("lead", ["math.inf", pytest.param("40.0 + gap", marks=pytest.mark.slow)])
def test_a_lead_that_breaks_its_word_is_found(tmp_path: Path, lead: str) -> None:
    config = configured(tmp_path, score="-view.queue * view.samples", lead=lead, has_lead=True, settings=LARGE)
    with pytest.raises(EnginesDifferError, match=r"by its lead device|passes device"):
        by(config, "compiled")


@pytest.mark.slow
def test_a_lead_that_keeps_its_word_runs_through(tmp_path: Path) -> None:
    config = configured(tmp_path, score="view.selections * 1.0", lead="math.inf", has_lead=True, settings=LARGE)
    assert by(config, "compiled").rounds.equals(by(config, "readable").rounds)


TURN = "-view.queue * view.samples - (1e9 if (view.round + 7 * view.device) % 3001 == 0 else 0.0)"


@pytest.mark.parametrize("score", mostly_slow(["-view.queue * view.samples * (1.0 + view.device % 3)", TURN], TURN))
def test_a_score_that_looks_at_numbers_has_its_lead_asked_for_devices_that_differ_in_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: str
) -> None:
    """Without the watch, which may find a wrong choice or not."""
    monkeypatch.setattr(watch.Watch, "look", lambda _: None)
    settings = {"fleet.devices": 600, "run.rounds": 4000, "objective.min_mean_samples": 0.1}
    config = configured(tmp_path, score=score, lead="0.0", has_lead=True, settings=settings)
    assert by(config, "compiled").rounds.equals(by(config, "readable").rounds)


@pytest.mark.slow
def test_with_everybody_in_flight_some_scores_are_compared(tmp_path: Path) -> None:
    config = configured(tmp_path, score="view.queue", settings={"fleet.devices": 5, "fleet.channels": 5, "run.rounds": 100})
    assert by(config, "compiled").rounds.equals(by(config, "readable").rounds)


@pytest.mark.parametrize("engine", ["readable", pytest.param("compiled", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("score", "error"),
    [
        ("1.0 / view.selections", "ZeroDivisionError"),
        pytest.param("math.log(view.queue - 1e9)", "ValueError", marks=pytest.mark.slow),
        pytest.param("math.exp(view.queue + 1e3)", "OverflowError", marks=pytest.mark.slow),
    ],
)
def test_an_error_of_the_users_is_a_sentence_with_file_and_line_in_both(
    tmp_path: Path, engine: str, score: str, error: str
) -> None:
    with pytest.raises(FedtwinError, match=rf"failed in round 1 for device \d+: ({error}).*mine\.py, line 6"):
        by(configured(tmp_path, score=score), engine)


EVERY_PICOSECOND = """import math
from fedtwin.draws import uniform, word
from fedtwin.world.parts import Channel

def gain(at, path_gain, settings):
    return -path_gain * math.log(uniform(word(at.stream, math.floor(at.clock_s * 1e12))))

CHANNEL = Channel(gain)
"""


def test_what_only_compiled_code_refuses_is_said_of_the_right_part_and_auto_starts_again_readably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pico.py").write_text(EVERY_PICOSECOND)
    (tmp_path / "pico.toml").write_text("[world]\nchannel = 'pico:CHANNEL'\n")
    config = load_config(tmp_path / "pico.toml", {"run.rounds": 300})
    with pytest.raises(EnginesDifferError, match=r"^world\.channel = 'pico:CHANNEL' fails when it is compiled .*over 1e12"):
        by(config, "compiled")
    monkeypatch.setattr("fedtwin.sim.run.engine_for", lambda config, **_: config.run.engine.replace("auto", "compiled"))
    with pytest.warns(FedtwinWarning, match=r"over 1e12.*'readable' runs it as it is written\. It starts again that way now"):
        result = simulate(config, out=tmp_path / "auto")
    assert result.rounds.equals(by(config, "readable").rounds)


def test_a_lead_that_fails_is_no_reason_to_stop_where_it_is_not_asked_for(tmp_path: Path) -> None:
    lead = "gap / (behind.samples - behind.samples)"
    config = configured(tmp_path, score="-view.queue * view.samples", lead=lead, has_lead=True, settings=LARGE)
    with pytest.raises(
        EnginesDifferError, match=r"^policy\.name = 'mine:POLICY' fails when it is compiled .*ZeroDivisionError"
    ):
        by(config, "compiled")
    assert len(by(config, "readable").rounds) > 0


@pytest.mark.parametrize("mode", ["async", pytest.param("sync", marks=pytest.mark.slow)])
def test_scores_that_are_all_nan_are_one_sentence_in_both(tmp_path: Path, mode: str) -> None:
    """From the 40th round on; before, a score that is NaN for want of what is not told yet comes last in both."""
    score = "view.compute_s if view.round < 40 else math.inf - math.inf"
    config = configured(tmp_path, score=score, settings={"run.mode": mode, "run.rounds": 900})
    for engine in ("readable", "compiled"):
        with pytest.raises(FedtwinError, match=r"gives every idle device the score NaN in round 40"):
            by(config, engine)


def test_a_constant_changed_in_this_process_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in_process.py").write_text(OF_QUEUES.format(score="view.queue * A", lead="0.0", has_lead=False, more="A = 1"))
    monkeypatch.syspath_prepend(tmp_path)
    config = load_config(overrides={"policy.name": "in_process:POLICY", "run.rounds": 300})
    module, found = importlib.import_module("in_process"), []
    for value in (1, -1):
        monkeypatch.setattr(module, "A", value)
        found.append([by(config, engine).summary.total_queue for engine in ("readable", "compiled")])
    assert found[0][0] == found[0][1] != found[1][0] == found[1][1]


@pytest.mark.parametrize("value", mostly_slow(["numpy.int64({})", "Level.{}", "({}, 1.0)[0]"], "numpy.int64({})"))
def test_constants_of_all_kinds_changed_on_disk_never_leave_old_numbers(tmp_path: Path, value: str) -> None:
    """Each in a process of its own, by the command line, with the same cache."""
    found = []
    for sign in ("ONE", "MINUS") if "Level" in value else ("1", "-1"):
        more = "import enum, numpy\nclass Level(enum.IntEnum):\n    ONE = 1\n    MINUS = -1\nA = " + value.format(sign)
        configured(tmp_path, score="-view.queue * A", more=more)
        rows = {}
        for engine in ("readable", "auto"):
            command = [sys.executable, "-m", "fedtwin", "run", "mine.toml", "--rounds", "3000", "--json"]
            environment = {**os.environ, "FEDTWIN_CACHE": str(tmp_path / "cache")}
            said = subprocess.run(
                [*command, "--set", f"run.engine={engine}"],
                cwd=tmp_path, capture_output=True, text=True, check=True, env=environment,
            )  # fmt: skip
            rows[engine] = json.loads(said.stdout)
        assert rows["readable"] == rows["auto"]
        found.append(rows["auto"])
    assert found[0]["total_queue"] != found[1]["total_queue"] and found[0]["config_hash"] != found[1]["config_hash"]


def test_what_is_not_understood_says_why(tmp_path: Path) -> None:
    config = configured(tmp_path, score="-view.queue * A", more="import numpy\nA = numpy.int64(1)")
    with pytest.raises(CannotCompileError, match=r"cannot be compiled \(in score: it uses A, a numpy\.int64"):
        by(config, "compiled")
