"""The value that is named does admit what the sentence says, and a little less does not."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fedtwin.config import Config, load_config, replace_settings
from fedtwin.config.save import settings as settings_of
from fedtwin.errors import FedtwinWarning
from fedtwin.formulas.power import optimal_plan
from fedtwin.sim import simulate
from fedtwin.sim.limits import remedies, share_admitted
from fedtwin.world.world import World
from tests.conftest import Cli

TIME, ENERGY, POWER = "objective.max_time_s", "objective.max_energy_j", "radio.max_power_w"
TIGHT = st.fixed_dictionaries(
    {
        TIME: st.floats(0.05, 2.0),
        ENERGY: st.floats(0.01, 2.0),
        POWER: st.sampled_from([1e-6, 1e-3, 1.0, 10.0]),
        "run.seed": st.integers(0, 50),
        "fleet.devices": st.sampled_from([1, 2, 9, 30]),
        "fleet.channels": st.just(1),
        "fleet.radius_m": st.sampled_from([50.0, 500.0, 5000.0]),
    }
)


def share_by_hand(config: Config, rounds: range) -> float:
    """With the simulator's own world and plans: the devices that find a power in more than half of the rounds."""
    world = World(config)

    def feasible(device: int, round_: int) -> bool:
        draw = world.draw(device, round_, 0.0)
        return optimal_plan(world.terms_of(device), draw.gain, draw.cpu_hz, draw.samples).feasible

    admitted = [sum(feasible(device, round_) for round_ in rounds) > len(rounds) / 2 for device in range(len(world.fleet))]
    return sum(admitted) / len(admitted)


@given(changes=TIGHT)
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
def test_what_is_named_admits_nine_of_ten_and_a_hundredth_less_does_not(changes: dict[str, Any]) -> None:
    config = load_config(overrides={**changes, "run.rounds": 15})
    share = share_admitted(config)
    assert share == share_by_hand(config, range(1, 16))
    found = remedies(config)
    assert (found == []) == (share >= 0.9)
    for remedy in found:
        assert all(value > settings_of(config)[name] for name, value in remedy.items())
        assert share_by_hand(replace_settings(config, remedy), range(1, 16)) >= 0.9
        name, value = list(remedy.items())[-1]
        assume(0.98 * value > settings_of(config)[name])
        assert share_by_hand(replace_settings(config, {**remedy, name: 0.98 * value}), range(1, 16)) < 0.9


def test_where_one_limit_is_not_enough_two_are_named_together() -> None:
    config = load_config(overrides={TIME: 0.05, ENERGY: 0.001})
    (remedy,) = remedies(config)
    assert list(remedy) == [TIME, ENERGY] and share_admitted(replace_settings(config, remedy)) >= 0.9


def test_a_limit_that_is_the_devices_own_is_named_as_such(tmp_path: Path) -> None:
    own = {"fleet.max_time_s": [0.1, 0.3], "fleet.samples_spread": 0.4, "run.rounds": 15}
    config = load_config(overrides=own)
    assert share_admitted(config) == share_by_hand(config, range(1, 16)) < 0.9
    (remedy,) = (found for found in remedies(config) if list(found) == ["fleet.max_time_s"])
    assert not any(TIME in found for found in remedies(config)), "that would change nothing"
    assert share_by_hand(replace_settings(config, remedy), range(1, 16)) >= 0.9
    less = {"fleet.max_time_s": 0.98 * remedy["fleet.max_time_s"]}
    assert share_by_hand(replace_settings(config, less), range(1, 16)) < 0.9
    file = tmp_path / "fleet.csv"
    file.write_text("distance_m,samples,cpu_hz,max_time_s\n100,80,2e9,0.1\n120,80,2e9,0.2\n")
    with pytest.warns(FedtwinWarning, match=r"max_time_s in fleet\.file = 0\.1 to 0\.2 is too tight, 0\.\d+ would let 90 %"):
        simulate({"fleet.file": str(file), "fleet.channels": 1, "run.rounds": 15})


def test_a_large_fleet_is_looked_at_in_samples() -> None:
    config = load_config(overrides={TIME: 0.2, "fleet.devices": 5000, "run.rounds": 10**12})
    assert remedies(config) and share_admitted(config) < 0.9


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_run_in_which_everybody_declines_warns_of_the_limit(mode: str) -> None:
    config = load_config(overrides={TIME: 0.1, "run.rounds": 30, "run.mode": mode})
    with pytest.warns(FedtwinWarning, match=r"Nobody was selected in 30 rounds.*objective\.max_time_s = 0\.1") as caught:
        result = simulate(config)
    assert result.summary.rounds == 0 and result.summary.mean_cost is None
    named = re.search(r"(\d\S*) would let 90 % of the devices", str(caught[0].message))
    assert named is not None
    again = replace_settings(config, {TIME: float(named[1])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simulate(again).summary.rounds > 0


def test_a_run_in_which_most_rounds_pass_warns_too() -> None:
    config = load_config(overrides={ENERGY: 0.05, "run.rounds": 50})
    with pytest.warns(FedtwinWarning, match=r"In \d+ of the 50 rounds every idle device declined.*max_energy_j = 0\.05"):
        result = simulate(config)
    assert 0 < result.summary.rounds < result.summary.passed_rounds


def test_an_unlucky_run_under_limits_that_admit_the_fleet_says_so() -> None:
    generous = {"fleet.devices": 1, "fleet.channels": 1, "run.rounds": 1}
    for seed in range(200):
        config = load_config(overrides={**generous, "run.seed": seed, TIME: 0.6})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = simulate(config)
        if result.summary.rounds == 0 and share_admitted(config) >= 0.9:
            assert "more rounds" in str(caught[0].message)
            return
    pytest.fail("no seed was unlucky")


def test_a_run_in_which_everybody_is_dropped_says_so_and_exits_with_3(cli: Cli) -> None:
    settings = ("--policy", "Sy-fairness", "--rounds", "30", "--set", "run.sync_timeout_s=0.001")
    done = cli("run", *settings)
    assert done.returncode == 3
    assert "Every upload was dropped, nothing was mixed in: run.sync_timeout_s = 0.001 is over before any device" in done.stderr


def test_where_nobody_is_there_the_limits_are_not_blamed(tmp_path: Path) -> None:
    code = "from fedtwin.world.parts import Availability\nASLEEP = Availability(lambda at, settings: False)\n"
    (tmp_path / "asleep.py").write_text(code)
    (tmp_path / "run.toml").write_text("[world]\navailability = 'asleep:ASLEEP'\n[run]\nrounds = 30\n")
    with pytest.warns(FedtwinWarning, match=r"world\.availability = 'asleep:ASLEEP' says who answers at all\.$"):
        simulate(tmp_path / "run.toml")


def test_the_command_line_says_so_and_exits_with_3(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", "--rounds", 30, "--set", f"{TIME}=0.1", "--out", "run")
    assert done.returncode == 3
    assert done.stderr.startswith("warning: Nobody was selected in 30 rounds") and len(done.stderr.splitlines()) == 1
    assert "selections" in done.stdout and "None" not in done.stdout and "nan" not in done.stdout
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["passed_rounds"] == 30
    as_json = cli("run", "--rounds", 30, "--set", f"{TIME}=0.1", "--json")
    assert as_json.returncode == 3 and json.loads(as_json.stdout)["mean_cost"] is None
