"""A rule of the user's own: found, named by its code, told its settings, resumed with its state, and held to its word."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtwin
from fedtwin import registry
from fedtwin.config import Config, LearningConfig, config_hash, load_config, parse_assignment, to_toml
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Aggregator, Upload, mixing_of, no_state
from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import make_workload
from fedtwin.learning.executors.cuda import Hub
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.live.wire.settings import shared_settings
from fedtwin.sim import resume, simulate
from tests.conftest import Cli

RULE = '''
"""Momentum of the server."""

from typing import Any, NamedTuple

from fedtwin.learning.aggregation import Aggregator


class Settings(NamedTuple):
    share: float = 0.5
    kind: str = "plain"


class Speed(NamedTuple):
    speed: Any
    seen: list


def init(model, settings):
    return Speed(0.0 * model, [])


def apply(state, model, upload, settings):
    speed = settings.own.share * state.speed + (upload.weights - upload.start)
    return Speed(speed, [*state.seen[-3:], upload.device]), model + 0.2 * speed


RULE = Aggregator(init, apply, settings=Settings, needs_start=True)
'''
FILES = ("rounds.parquet", "evaluations.parquet", "model.safetensors", "summary.json")
BASE = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 40, "learning.evaluate_every_s": 1.0}


SHARE: dict[str, Any] = {"learning.aggregation_settings.share": 0.25}


def config_in(folder: Path, source: str = RULE, **changes: Any) -> Config:
    (folder / "momentum.py").write_text(source, encoding="utf-8")
    (folder / "mine.toml").write_text('[learning]\naggregation = "momentum:RULE"\n', encoding="utf-8")
    return load_config(folder / "mine.toml", {**BASE, **changes})


def test_it_is_named_by_its_code_and_its_source_is_kept(tmp_path: Path) -> None:
    config = config_in(tmp_path, **SHARE)
    assert config.own_code == {"learning.aggregation": "momentum:RULE"}
    result = simulate(config, out=tmp_path / "run")
    assert (tmp_path / "run" / "code" / "momentum.py").read_text(encoding="utf-8") == RULE
    assert set(result.identity.code) == {"learning.aggregation"}
    assert fedtwin.open_run(tmp_path / "run").summary["aggregation_code"] == result.identity.code["learning.aggregation"]
    again = load_config(tmp_path / "run" / "config.toml")
    assert again.learning is not None and again.learning.aggregation_settings == {"share": 0.25}
    changed = config_in(tmp_path, RULE.replace("0.2 *", "0.3 *"), **SHARE)
    assert config_hash(again) == result.identity.hash != config_hash(changed)


def test_settings_of_its_own_count_and_none_leave_no_trace(tmp_path: Path) -> None:
    plain, other = config_in(tmp_path), config_in(tmp_path, **SHARE)
    assert config_hash(plain) != config_hash(other)
    assert "aggregation_settings" not in to_toml(plain) and "[learning.aggregation_settings]" in to_toml(other)
    models = [simulate(config).weights for config in (plain, other)]
    assert any((one != its).any() for one, its in zip(models[0].values(), models[1].values(), strict=True))


def test_a_wrong_setting_is_one_sentence_and_exit_code_2(cli: Cli, tmp_path: Path) -> None:
    config_in(tmp_path)
    for text, words in (
        ("share=fast", "learning.aggregation_settings.share = 'fast' is not allowed"),
        ("shar=1", "learning.aggregation_settings.shar is not a setting (did you mean share?): allowed are share, kind."),
        ("kind=7", "learning.aggregation_settings.kind = 7 is not allowed"),
    ):
        with pytest.raises(FedtwinError) as told:
            simulate(load_config(tmp_path / "mine.toml", dict([parse_assignment(f"learning.aggregation_settings.{text}")])))
        assert words in str(told.value) and "\n" not in str(told.value)
        for command in () if text != "shar=1" else ("run", "config check"):
            said = cli(*command.split(), str(tmp_path / "mine.toml"), "--set", f"learning.aggregation_settings.{text}")
            assert said.returncode == 2 and words in said.stderr and said.stderr.count("\n") == 1, said.stderr


@pytest.mark.parametrize("stop_at", [9, 25])
def test_a_stopped_run_has_its_state_back_bit_for_bit(tmp_path: Path, stop_at: int) -> None:
    config = config_in(tmp_path)
    simulate(config, out=tmp_path / "whole")

    def stop(selections: int) -> None:
        if selections == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "stopped", checkpoint_every_s=0.0, progress=stop)
    resume(tmp_path / "stopped")
    for name in FILES:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_it_mixes_the_tensors_of_a_gpu_as_well(tmp_path: Path) -> None:
    """The executor of the GPU, which trains here on the CPU, keeps its models as PyTorch's tensors."""
    config, data = config_in(tmp_path), load_dataset("digits")
    workload = make_workload(config, data.shape, data.outputs)
    by_tensors = simulate(config, executor=Hub(make_trainer(workload, "float32", "cpu")).executor())
    assert by_tensors.summary.test_loss == pytest.approx(simulate(config).summary.test_loss, rel=1e-3)


def test_a_tensor_that_lies_elsewhere_ends_a_run_with_a_sentence(tmp_path: Path) -> None:
    """As one that a rule has brought to the CPU would, of a model on a GPU."""
    config = config_in(
        tmp_path,
        RULE.replace("return Speed(speed,", "return Speed(0.0 * model,").replace("model + 0.2 * speed", 'model.to("meta")'),
    )
    data = load_dataset("digits")
    hub = Hub(make_trainer(make_workload(config, data.shape, data.outputs), "float32", "cpu"))
    with pytest.raises(FedtwinError, match=r"'momentum:RULE' gives a model on meta in apply, not on cpu\.$"):
        simulate(config, executor=hub.executor())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("return state, model[:-1]", r"gives a model of shape \(\d+,\) and float32 in apply, not of shape"),
        ("return state, model * float('nan')", "gives a model in apply that is not finite"),
        ("model += upload.weights; return state, model", r"fails in apply: .*read-only .*momentum\.py, line \d+\)"),
        ("return {upload.device}, None", "has a state that no checkpoint can hold: state is a set"),
        ("return 1 / 0", r"fails in apply: ZeroDivisionError: division by zero \(.*momentum\.py, line \d+\)"),
        ("raise SystemExit", r"fails in apply: SystemExit \(.*momentum\.py, line \d+\)"),
        ("import random; return state, model + random.random()", "answers the same question in two ways"),
    ],
)
def test_a_broken_word_ends_a_run_with_a_sentence(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(FedtwinError, match=rf"^learning\.aggregation = 'momentum:RULE' {words}"):
        simulate(config_in(tmp_path, RULE.replace("    speed = settings.own", f"    {line}\n    speed = settings.own")))


def test_a_rule_that_cannot_begin_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match="fails in init: NameError"):
        simulate(config_in(tmp_path, RULE.replace("0.0 * model", "nothing")), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("momentum:Speed", "is a type, not a fedtwin.learning.aggregation.Aggregator"),
        ("momentum:nothing", "cannot be loaded"),
        ("nowhere:RULE", "cannot be loaded"),
    ],
)
def test_what_is_no_rule_is_told(tmp_path: Path, name: str, words: str) -> None:
    config_in(tmp_path)
    config = load_config(tmp_path / "mine.toml", {**BASE, "learning.aggregation": name})
    with pytest.raises(FedtwinError, match=words):
        simulate(config)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("0, apply", "init = 0 is a int: a function is needed"),
        ("init, apply, settings=int", "settings = .* is not a NamedTuple class"),
        ("init, apply, modes=('live',)", r"modes = \('live',\) is not allowed: it must be a tuple of async and sync"),
    ],
)
def test_who_writes_a_rule_hears_at_once_what_it_cannot_be(tmp_path: Path, arguments: str, words: str) -> None:
    with pytest.raises(FedtwinError, match=words):
        simulate(config_in(tmp_path, RULE.replace("init, apply, settings=Settings, needs_start=True", arguments)))


def test_a_name_of_an_installed_package_is_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_in(tmp_path)
    monkeypatch.setattr(registry, "installed", lambda kind: {"momentum": "momentum:RULE"} if kind == "aggregators" else {})
    config = load_config(tmp_path / "mine.toml", {**BASE, "learning.aggregation": "momentum", "run.rounds": 10})
    assert config.own_code == {"learning.aggregation": "momentum:RULE"}
    assert set(simulate(config).identity.code) == {"learning.aggregation"}
    settings = shared_settings(config)
    assert not {"aggregation", "aggregation_settings"} & set(settings["learning"]), "no device needs the package"
    assert Config.model_validate(settings).own_code == {}


MEMORY = """
import functools
from fedtwin.learning.aggregation import Aggregator, no_state


@functools.cache
def worst():
    return {}


def apply(state, model, upload, settings):
    worst()[upload.device] = largest = max(worst().get(upload.device, 0), upload.staleness)
    return state, model + 0.5 / (1.0 + LARGEST) * (upload.weights - model)


RULE = Aggregator(no_state, apply)
"""


@pytest.mark.parametrize("average", ["none", "ema"])
def test_a_rule_that_remembers_beside_its_state_is_refused(tmp_path: Path, average: str) -> None:
    words = r"^learning\.aggregation = 'momentum:RULE' answers otherwise when it is asked again of device \d+ in round \d+, so"
    with pytest.raises(FedtwinError, match=words):
        simulate(config_in(tmp_path, MEMORY.replace("LARGEST", "largest"), **{"learning.average": average}))
    simulate(config_in(tmp_path, MEMORY.replace("LARGEST", "upload.staleness"), **{"learning.average": average}))


def test_questions_of_a_rule_are_kept_while_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.learning.aggregation.at_work.MOST_KEPT_BYTES", 100)
    aggregator = Aggregator(no_state, lambda state, _model, upload, _settings: (state, upload.weights))
    rule = Rule("mine", aggregator, mixing_of(LearningConfig(), aggregator))
    (questions,) = rule.keep_questions()
    for device in range(5):
        rule.apply((), np.zeros(10, np.float32), Upload(None, np.ones(10, np.float32), 0, 1.0, device, 1))
    assert len(questions._kept) == 2
    assert questions.answered_otherwise() is None
