"""A world of the user's own: parts beside a TOML, the same rows in both engines, one sentence for what is wrong."""

from pathlib import Path
from typing import Any

import pytest

from fedtwin import open_run, simulate
from fedtwin.config import config_hash, load_config
from fedtwin.config.load import parse_assignment
from fedtwin.errors import FedtwinError
from fedtwin.sim import Result
from fedtwin.testing import check_world
from fedtwin.world.parts import load_part
from tests.conftest import Cli, mostly_slow
from tests.runs.truth import truth_of

PARTS = """
import math
from typing import NamedTuple

from fedtwin.draws import uniform, word
from fedtwin.world.parts import Availability, Channel, Load, Sensing


class Blocks(NamedTuple):
    rounds: int = 5
    depth: float = 1.0
    flat: bool = False


def gain(at, path_gain, settings):
    if settings.flat:
        return path_gain
    fading = -math.log(uniform(word(at.stream, at.round // settings.rounds)))
    return path_gain * (1.0 - settings.depth + settings.depth * fading)


class Day(NamedTuple):
    period_s: float = 30.0
    share: float = 0.4


def cpu_hz(at, processor, settings):
    wave = 0.5 + 0.5 * math.sin(2.0 * math.pi * at.clock_s / settings.period_s + at.device)
    return max(processor.mean_hz * (1.0 - settings.share * wave), processor.floor_hz)


class Chance(NamedTuple):
    share: float = 0.7


def available(at, settings):
    return uniform(word(at.stream, at.round)) < settings.share


class Shift(NamedTuple):
    every: int = 7
    share: float = 0.5


def samples(at, sensor, settings):
    if at.round % settings.every < 3:
        return sensor.mean
    return 1.0 + (uniform(word(at.stream, at.round)) * settings.share * sensor.mean) // 1.0


CHANNEL, LOAD, AVAILABILITY = Channel(gain, Blocks), Load(cpu_hz, Day), Availability(available, Chance)
SENSING = Sensing(samples, Shift)
NUMBER = 3
CRASHES = Channel(lambda at, path_gain, settings: path_gain / 0.0)
"""
TOML = """
[fleet]
devices = 8
channels = 3
[world]
channel = "parts:CHANNEL"
load = "parts:LOAD"
availability = "parts:AVAILABILITY"
sensing = "parts:SENSING"
[world.channel_settings]
depth = 0.8
[world.availability_settings]
share = 0.6
[run]
rounds = 150
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "mine.toml").write_text(TOML)
    return tmp_path


def run(folder: Path, engine: str, out: Path | None = None, **changes: Any) -> Result:
    config = load_config(folder / "mine.toml", {"run.engine": engine, **changes})
    return simulate(config, out=out)


@pytest.mark.parametrize("mode", mostly_slow(["async", "sync"], "async"))
@pytest.mark.slow
def test_both_engines_give_the_same_rows_and_a_replay_the_same_twin(folder: Path, mode: str) -> None:
    for settings in (
        {},
        {"world.channel_settings.rounds": 2, "world.load_settings.share": 0.1, "world.sensing_settings.every": 4},
    ):
        changes: dict[str, Any] = {"run.mode": mode, **settings}
        one, other = (
            run(folder, engine, folder / f"{engine}{len(settings)}", **changes) for engine in ("readable", "compiled")
        )
        assert one.rounds.equals(other.rounds) and one.summary == other.summary
        truth = truth_of(one.config)
        for result in (one, other):
            assert result.folder is not None
            assert open_run(result.folder).twin() == truth.changes[-1][1]
            assert open_run(result.folder).twin(round=40) == truth.at_round[40]


def test_who_is_not_there_declines_and_is_not_heard(folder: Path) -> None:
    result = run(folder, "readable", None, **{"objective.max_time_s": 5.0, "objective.max_energy_j": 5.0})
    rows = result.rounds.to_pylist()
    declined = [row for row in rows if row["declined"]]
    assert {row["decline_reason"] for row in declined} == {"unavailable"}
    assert 0.3 < len(declined) / len(rows) < 0.5
    for row in declined:
        assert row["cost"] is None and row["compute_s"] is None
    world = truth_of(result.config)
    heard: dict[int, int] = dict.fromkeys(range(8), 0)
    for row in rows:
        heard[row["device"]] += not row["declined"]
    started = {device: twin.gains for device, twin in enumerate(world.at_round[1].devices)}
    last = world.changes[-1][1].devices
    assert {device: twin.gains - started[device] for device, twin in enumerate(last)} == heard


def test_a_settings_declaration_and_the_code_are_a_part_of_the_hash(folder: Path) -> None:
    first = config_hash(load_config(folder / "mine.toml"))
    assert config_hash(load_config(folder / "mine.toml")) == first
    for name in ("channel_settings.depth", "load_settings.share", "availability_settings.share", "sensing_settings.share"):
        assert config_hash(load_config(folder / "mine.toml", {f"world.{name}": 0.31})) != first
    seen = {first}
    for old, new in (
        ("1.0 - settings.depth", "1.5 - settings.depth"),
        ("+ at.device", "- at.device"),
        ("share: float = 0.7", "share: float = 0.8"),
    ):
        text = (folder / "parts.py").read_text()
        assert old in text
        (folder / "parts.py").write_text(text.replace(old, new))
        seen.add(config_hash(load_config(folder / "mine.toml")))
    assert len(seen) == 4


def test_a_run_folder_keeps_the_world_and_runs_again(folder: Path) -> None:
    first = run(folder, "readable", folder / "first")
    assert (folder / "first" / "code" / "parts.py").read_text() == PARTS
    (folder / "parts.py").write_text("raise SystemExit\n")
    again = simulate(folder / "first" / "config.toml")
    assert again.rounds.equals(first.rounds)


@pytest.mark.slow
def test_a_part_beside_a_toml_passes_its_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    (folder / "my_parts.py").write_text(PARTS)
    compiled, why_not, mean = check_world("my_parts:AVAILABILITY", {"share": 0.25})
    assert compiled, why_not
    assert mean == pytest.approx(0.25, abs=0.03)
    assert load_part("load", "my_parts:LOAD").cpu_hz.__name__ == "cpu_hz"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("world.channel=raleigh", "world.channel = 'raleigh' is not allowed: choose one of rayleigh"),
        ("world.load=fast", "world.load = 'fast' is not allowed: choose one of normal"),
        ("world.channel=parts:LOAD", "world.channel = 'parts:LOAD' is a Load, not a fedtwin.world.Channel."),
        ("world.availability=parts:NUMBER", "world.availability = 'parts:NUMBER' is a int, not a fedtwin.world.Availability."),
        ("world.load=parts:NOTHING", "world.load = 'parts:NOTHING' cannot be loaded"),
        ("world.channel_settings.deep=1", "world.channel_settings.deep is not a setting (did you mean depth?)"),
        ("world.channel_settings.rounds=1.5", "world.channel_settings.rounds = 1.5 is not allowed"),
        ("world.channel_settings.depth=true", "world.channel_settings.depth = True is not allowed"),
        ("world.channel_settings.depth=nan", "world.channel_settings.depth = nan is not allowed"),
        ("world.channel_settings.rounds=0", "failed in round 0 for device "),
        ("world.channel=parts:CRASHES", "world.channel_settings.depth is not a setting: what is chosen there has no settings"),
    ],
)
def test_what_is_wrong_is_one_sentence(folder: Path, setting: str, sentence: str) -> None:
    with pytest.raises(FedtwinError) as told:
        simulate(load_config(folder / "mine.toml", dict([parse_assignment(setting)])))
    assert sentence in str(told.value) and "\n" not in str(told.value)


def test_on_the_command_line_it_is_exit_code_2(cli: Cli, folder: Path) -> None:
    done = cli("run", folder / "mine.toml", "--set", "world.channel=parts:LOAD")
    assert done.returncode == 2
    assert done.stderr == "error: world.channel = 'parts:LOAD' is a Load, not a fedtwin.world.Channel.\n"


@pytest.mark.parametrize("engine", ["readable", "compiled"])
def test_a_part_that_fails_late_is_one_sentence_in_both_engines(folder: Path, engine: str) -> None:
    late = PARTS.replace("return path_gain * (1.0", "if at.round > 60:\n        return -path_gain\n    return path_gain * (1.0")
    (folder / "parts.py").write_text(late)
    with pytest.raises(FedtwinError, match=r"world\.channel = 'parts:CHANNEL' failed in round 61 for device .* above 0"):
        run(folder, engine)
