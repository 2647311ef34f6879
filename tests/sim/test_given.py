"""What ``simulate`` may be given from Python."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.sim import simulate
from fedtwin.sim.given import configured

NETWORK = """from torch import nn
import fedtwin

def network(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

if __name__ == "__main__":
    settings = {"run.rounds": 8, "learning.executor": "processes", "learning.workers": 1}
    result = fedtwin.simulate(settings, model=network, out="run")
    print(result.config.learning.model, sorted(result.weights))
"""


def test_settings_come_in_any_form(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("[run]\nrounds = 70\n")
    wanted = load_config(overrides={"run.rounds": 70})
    flat, nested = {"run.rounds": 70}, {"run": {"rounds": 70}}
    for given in (wanted, flat, nested, tmp_path / "run.toml", str(tmp_path / "run.toml")):
        assert configured(given) == wanted
    assert configured() == Config()
    assert simulate({"run.rounds": 20}).summary.rounds == 20


@pytest.mark.parametrize("value", [70, 80])
def test_a_setting_that_is_given_twice_is_refused(value: int) -> None:
    with pytest.raises(FedtwinError) as told:
        configured({"run.rounds": 70, "run": {"rounds": value, "seed": 3}})
    assert str(told.value) == (
        f'run.rounds is given twice, as "run.rounds": 70 and "run": {{"rounds": {value}}}: leave one out.'
    )
    assert configured({"run.rounds": 70, "run": {"seed": 3}}).run.seed == 3


def test_a_policy_by_name_replaces_the_configured_one_and_a_scheme_brings_its_mode(tmp_path: Path) -> None:
    assert configured(Config(), policy="Sy-fairness") == load_config(overrides={"policy.name": "Sy-fairness"})
    (tmp_path / "near.py").write_text("from fedtwin import Policy\nP = Policy(lambda view, knobs: view.queue, power='max')\n")
    (tmp_path / "run.toml").write_text("[run]\nrounds = 7\n")
    near = configured(tmp_path / "run.toml", policy="near:P")
    assert near.code.folder == str(tmp_path) and config_hash(near) == config_hash(
        load_config(tmp_path / "run.toml", {"policy.name": "near:P"})
    )


def score(view: Any, _: Any) -> float:
    return float(view.queue)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"config": 7}, r"config = 7 is a int: a Config, a dictionary of settings, the path of a TOML file or nothing"),
        ({"config": {"run.round": 7}}, r"run\.round is not a setting \(did you mean rounds\?\)"),
        ({"policy": score}, r"policy = .* not a name nor a fedtwin\.Policy: a score alone becomes one by Policy\(score"),
        ({"policy": "fastest"}, r"policy\.name = 'fastest' is not allowed"),
        ({"model": 7}, r"model = int is not what makes a network"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        simulate(**given)


def test_an_aggregation_rule_as_an_object_mixes_the_uploads() -> None:
    from fedtwin.learning.aggregation import Aggregator, load_aggregator, no_state

    def half(state: Any, model: Any, upload: Any, settings: Any) -> tuple[Any, Any]:  # noqa: ARG001
        return state, 0.5 * model + 0.5 * upload.weights

    few = {"run.rounds": 8, "learning.executor": "serial"}
    found = simulate(few, aggregation=Aggregator(no_state, half))
    plain = simulate({**few, "learning.mixing": 0.5, "learning.staleness": "constant"})
    assert len(found.identity.code["learning.aggregation"]) == 64
    assert all(np.allclose(found.weights[name], plain.weights[name], atol=1e-6) for name in plain.weights)
    assert configured(few, aggregation=load_aggregator("fedbuff")) == configured(few, aggregation="fedbuff")


def test_a_network_that_is_made_already_is_refused() -> None:
    from torch import nn

    with pytest.raises(FedtwinError, match="model = Linear is not what makes a network: give a function or class"):
        simulate(model=nn.Linear(2, 2))


def test_a_network_as_an_object_is_trained_and_one_of_this_process_stays_here(tmp_path: Path) -> None:
    from torch import nn

    def network(shape: tuple[int, int, int], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))

    result = simulate({"run.rounds": 8}, model=network)
    assert sorted(result.weights) == ["1.bias", "1.weight"] and len(result.identity.code["learning.model"]) == 64
    with pytest.raises(FedtwinError, match=r"learning\.executor = 'processes' builds it in other processes"):
        simulate({"run.rounds": 8, "learning.executor": "processes"}, model=network)
    with pytest.raises(FedtwinError, match="the folder of a run keeps the source of its code"):
        simulate({"run.rounds": 8}, model=network, out=tmp_path / "run")


@pytest.mark.slow
def test_the_workers_of_a_script_find_its_network(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETWORK)
    said = subprocess.run([sys.executable, "nets.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert said.stdout == "nets:network ['1.bias', '1.weight']\n", said.stderr
    others = [line for line in said.stderr.splitlines() if "resource_tracker" not in line and "warnings.warn" not in line]
    assert not others, said.stderr  # Python's tracker may lose a race with its own processes at the end
    assert (tmp_path / "run" / "code" / "nets.py").read_text() == NETWORK
