import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.config import Config, build_config, config_hash, load_config, parse_assignment, replace_settings, save, to_toml
from fedtwin.errors import FedtwinError

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "fleet.devices": st.integers(15, 1000),
        "fleet.radius_m": st.floats(11, 1e5),
        "radio.noise_dbm": st.floats(-200, 0),
        "objective.energy_weight": st.floats(0, 1),
        "policy.name": st.sampled_from(["cu-ucb", "queue-only", "fairness", "random", "genie"]),
        "policy.v": st.floats(0, 1e9).filter(lambda v: v == 0 or v > 1e-30),
        "policy.power": st.sampled_from(["scheme", "optimal", "max"]),
        "run.mode": st.sampled_from(["async", "sync"]),
        "run.seed": st.integers(0, 2**63 - 1),
    },
)


def test_defaults_are_those_of_the_paper() -> None:
    config = load_config()
    assert (config.fleet.devices, config.fleet.channels, config.radio.max_power_w) == (30, 15, 1.0)
    assert (config.objective.max_time_s, config.objective.max_energy_j, config.radio.update_bits) == (1.0, 1.2, 8e6)
    assert (config.policy.name, config.policy.v, config.run.mode) == ("cu-ucb", 1e5, "async")


@given(changes=CHANGES)
def test_toml_out_and_in_is_the_same_configuration(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]) -> None:
    config = build_config({}, changes)
    path = tmp_path_factory.mktemp("config") / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config
    assert config_hash(load_config(path)) == config_hash(config)


@given(changes=CHANGES)
def test_the_hash_names_the_settings(changes: dict[str, Any]) -> None:
    config = build_config({}, changes)
    assert (config_hash(config) == config_hash(Config())) == (config == Config())


def test_a_live_run_from_before_its_ledger_could_be_a_stream_keeps_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_file, at_the_broker = (load_config(overrides={"live.ledger": kind}) for kind in ("file", "stream"))
    now, other = config_hash(in_a_file), config_hash(at_the_broker)
    usual = save.settings
    monkeypatch.setattr(save, "settings", lambda config: {k: v for k, v in usual(config).items() if k != "live.ledger"})
    assert config_hash(in_a_file) == now != other


def test_later_settings_win(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[run]\nrounds = 7\nseed = 3\n[policy]\nname = 'Sy-fairness'\n")
    assert load_config(path).run.mode == "sync"
    changed = load_config(path, {"run.rounds": 9, "policy.name": "CU-UCB"})
    assert (changed.run.rounds, changed.run.seed, changed.run.mode, changed.policy.name) == (9, 3, "async", "cu-ucb")
    assert replace_settings(changed, {"policy.name": "Sy-fairness"}).run.mode == "sync"


@pytest.mark.parametrize("name", ["CU-UCB", "cu-ucb", "As-Q-only", "as-q-only", "Random", "random"])
def test_either_name_of_a_policy_is_taken(name: str) -> None:
    assert load_config(overrides={"policy.name": name}).policy.name in ("cu-ucb", "queue-only", "random")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"radio.bandwidth_hz": -1}, r"radio\.bandwidth_hz = -1 .* greater than 0"),
    ({"radio.bandwidth_hz": float("nan")}, r"radio\.bandwidth_hz = nan .* finite"),
    ({"radio.bandwidth_hz": float("inf")}, r"radio\.bandwidth_hz = inf .* finite"),
    ({"radio.bandwidth_hz": True}, r"radio\.bandwidth_hz = True .* number"),
    ({"radio.bandwidth_hz": 1e-300}, r"radio\.bandwidth_hz = 1e-300 .* between"),
    ({"radio.bandwith_hz": 1}, r"radio\.bandwith_hz is not a setting \(did you mean bandwidth_hz\?\)"),
    ({"radios.bandwidth_hz": 1}, r"radios is not a section \(did you mean radio\?\)"),
    ({"run": 5}, r"run = 5 is not a setting: write section\.key=value"),
    ({"fleet.channels": 31}, r"channels = 31 is more than devices = 30"),
    ({"fleet.samples_min": 200}, r"samples_max = 100 is below samples_min = 200"),
    ({"compute.cpu_hz_min": 5e9}, r"cpu_hz_max = .* is below cpu_hz_min"),
    ({"objective.energy_weight": 1.01}, r"objective\.energy_weight = 1\.01 .* less than or equal to 1"),
    ({"policy.name": "best"}, r"policy\.name = 'best' .* choose one of cu-ucb, .*Sy-fairness"),
    ({"policy.power": "full"}, r"policy\.power = 'full' .* 'scheme', 'optimal' or 'max'"),
    ({"policy.name": "Sy-fairness", "run.mode": "async"}, r"run\.mode = 'async' contradicts policy\.name = 'Sy-fairness'"),
    ({"run.rounds": 0}, r"run\.rounds = 0 .* greater than or equal to 1"),
    ({"run.rounds": 2.5}, r"run\.rounds = 2\.5"),
    ({"fleet.max_power_w": [0.1]}, r"fleet\.max_power_w = \[0\.1\] is not allowed: it must be a list with 2 values"),
    ({"fleet.max_power_w": [0.1, 0.2, 0.3]}, r"fleet\.max_power_w = .* it must be a list with 2 values"),
    ({"fleet.file": "nowhere.csv"}, r"fleet\.file = 'nowhere\.csv' cannot be read"),
]


@pytest.mark.parametrize(("overrides", "sentence"), BAD, ids=[str(sorted(bad)) for bad, _ in BAD])
def test_bad_settings_are_one_sentence(overrides: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedtwinError) as caught:
        load_config(overrides=overrides)
    assert re.search(sentence, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize("text", ["[run", "run = 3", "[run]\nrounds = 'x'", "[run]\nrounds = 1\nrounds = 2", "\x00"])
def test_a_corrupt_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(FedtwinError) as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


def test_assignments_are_read_as_toml_or_text() -> None:
    assert parse_assignment("run.rounds=10") == ("run.rounds", 10)
    assert parse_assignment("policy.v=1e4") == ("policy.v", 1e4)
    assert parse_assignment("policy.name=As-Q-only") == ("policy.name", "As-Q-only")
    for text in ("rounds=3", "run.rounds"):
        with pytest.raises(FedtwinError, match=r"section\.key=value"):
            parse_assignment(text)


def test_a_changed_helper_of_a_users_policy_is_another_run(tmp_path: Path) -> None:
    (tmp_path / "a_helper.py").write_text("def half(x):\n    return x / 2\n")
    (tmp_path / "a_policy.py").write_text(
        "from a_helper import half\nfrom fedtwin.policies import Policy\n\n\n"
        "def score(view, knobs):\n    return half(view.queue)\n\n\nPOLICY = Policy(score, power='max')\n"
    )
    (tmp_path / "mine.toml").write_text("[policy]\nname = 'a_policy:POLICY'\n")
    first = config_hash(load_config(tmp_path / "mine.toml"))
    assert config_hash(load_config(tmp_path / "mine.toml")) == first
    (tmp_path / "a_helper.py").write_text("def half(x):\n    return x / 3\n")
    assert config_hash(load_config(tmp_path / "mine.toml")) != first


def test_engine_and_records_do_not_change_what_a_run_is() -> None:
    assert config_hash(load_config(overrides={"run.engine": "readable", "run.records": False})) == config_hash(load_config())
