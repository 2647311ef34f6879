"""Code of the user's own: found beside its TOML, shadowing nothing, and known by a digest that sees every change."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.policies import Policy, load_policy, policy_of
from fedtwin.usercode import code_digest, keep_sources, load_object, source_digest
from fedtwin.usercode.reaching import is_users

POLICY = """from fedtwin.policies import Policy
from constants import FACTOR

def score(view, knobs):
    return FACTOR * view.queue

POLICY = Policy(score, power="max")
"""


def write(folder: Path, **modules: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        path = (folder / name).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def configured(folder: Path, name: str = "mine:POLICY", more: str = "") -> Config:
    (folder / "mine.toml").write_text(f"[policy]\nname = '{name}'\n{more}", encoding="utf-8")
    return load_config(folder / "mine.toml")


def test_code_is_looked_for_beside_its_toml_and_shadows_nothing(tmp_path: Path) -> None:
    one = write(tmp_path / "one", mine=POLICY, constants="FACTOR = 1.0\n")
    two = write(tmp_path / "two", mine=POLICY, constants="FACTOR = 2.0\n", random="raise RuntimeError('shadowed')\n")
    modules_before = set(sys.modules)
    policies = [policy_of(configured(folder)) for folder in (one, two)]
    assert all(isinstance(policy, Policy) for policy in policies)
    factors = [policy.score.__globals__["FACTOR"] for policy in policies]
    assert factors == [1.0, 2.0]
    assert not {"mine", "constants"} & (sys.modules.keys() - modules_before)
    assert importlib.import_module("random").random() < 1.0


def test_packages_and_relative_imports_beside_a_toml(tmp_path: Path) -> None:
    rules = "from . import weights\nfrom .weights import HALF\nimport plant.weights as again\n" + POLICY
    check = "assert again.HALF == weights.HALF == HALF\n"
    write(tmp_path, **{"plant/__init__": "", "plant/rules": rules + check, "plant/weights": "HALF = 0.5\n"})
    write(tmp_path, constants="FACTOR = 3.0\n")
    first = config_hash(configured(tmp_path, "plant.rules:POLICY"))
    write(tmp_path, **{"plant/weights": "HALF = 0.25\n"})
    assert config_hash(configured(tmp_path, "plant.rules:POLICY")) != first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FACTOR = 1.0\n", "FACTOR = 2.0\n"),
        ("import numpy\nFACTOR = numpy.int64(1)\n", "import numpy\nFACTOR = numpy.int64(-1)\n"),
        ("import deeper\nFACTOR = deeper.VALUE\n", None),
    ],
)
def test_every_change_of_what_is_reached_is_another_hash(tmp_path: Path, before: str, after: str | None) -> None:
    write(tmp_path, mine=POLICY, constants=before, deeper="VALUE = 1.0\n")
    first = config_hash(configured(tmp_path))
    assert config_hash(configured(tmp_path)) == first
    if after is None:
        write(tmp_path, deeper="VALUE = 7.0\n")
    else:
        write(tmp_path, constants=after)
    assert config_hash(configured(tmp_path)) != first


def test_what_is_not_reached_does_not_count_and_neither_does_the_place(tmp_path: Path) -> None:
    one = write(tmp_path / "one", mine=POLICY, constants="FACTOR = 1.0\n", unrelated="X = 1\n")
    two = write(tmp_path / "two", mine=POLICY, constants="FACTOR = 1.0\n", unrelated="X = 2\n")
    assert config_hash(configured(one)) == config_hash(configured(two))
    assert code_digest("policy.name", "mine:POLICY", one) == code_digest("policy.name", "mine:POLICY", two)


def test_a_constant_set_in_this_process_is_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(write(tmp_path, own_constant=POLICY.replace("from constants import FACTOR", "FACTOR = 1.0")))
    config = load_config(overrides={"policy.name": "own_constant:POLICY"})
    first = config_hash(config)
    monkeypatch.setattr(importlib.import_module("own_constant"), "FACTOR", -1.0)
    assert config_hash(config) != first


def test_a_module_changed_on_disk_after_its_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = POLICY.replace("from constants import FACTOR", "FACTOR = 1.0")
    monkeypatch.syspath_prepend(write(tmp_path, changed_on_disk=text))
    load_policy("changed_on_disk:POLICY")
    write(tmp_path, changed_on_disk=text.replace("FACTOR * view.queue", "-FACTOR * view.queue"))
    with pytest.raises(FedtwinError, match=r"changed_on_disk\.py' has been changed since it was imported"):
        config_hash(load_config(overrides={"policy.name": "changed_on_disk:POLICY"}))


def test_the_source_digest_loads_nothing(tmp_path: Path) -> None:
    write(tmp_path, mine="raise RuntimeError('loaded')\nimport constants\n", constants="FACTOR = 1.0\n")
    first = source_digest("mine:POLICY", tmp_path)
    write(tmp_path, constants="FACTOR = 2.0\n")
    assert source_digest("mine:POLICY", tmp_path) != first


def test_sources_are_kept_as_they_are_without_loading_them(tmp_path: Path) -> None:
    write(tmp_path / "from", mine="raise RuntimeError\nimport plant.weights\n")
    write(tmp_path / "from", **{"plant/__init__": "", "plant/weights": "HALF = 0.5\n"})
    assert keep_sources(["mine:POLICY"], tmp_path / "from", tmp_path / "to")
    kept = sorted(str(path.relative_to(tmp_path / "to")) for path in (tmp_path / "to").rglob("*.py"))
    assert kept == ["mine.py", "plant/__init__.py", "plant/weights.py"]
    assert not keep_sources([], None, tmp_path / "none") and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nothing_of_that_name\n", "ModuleNotFoundError: .*nothing_of_that_name.* line 1"),
        ("X = 1 / 0\n", r"ZeroDivisionError: division by zero \(.*mine\.py, line 1\)"),
        ("def broken(:\n", "SyntaxError"),
        ("OTHER = 1\n", "no attribute 'POLICY'"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(FedtwinError, match=rf"policy\.name = 'mine:POLICY' cannot be loaded: .*{sentence}"):
        load_object("policy.name", "mine:POLICY", write(tmp_path, mine=text))


def fedtwin(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedtwin", *arguments],
        cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_run_folder_keeps_the_code_and_can_be_moved_run_again_and_read_without_running_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "from", mine=POLICY, constants="FACTOR = 1.0\n")
    configured(folder, more="[run]\nrounds = 30\n")
    assert fedtwin("run", "mine.toml", "--out", "run", cwd=folder).returncode == 0
    moved = tmp_path / "elsewhere"
    (folder / "run").rename(moved)
    for name in ("mine", "constants"):
        (folder / f"{name}.py").unlink()
    again = fedtwin("run", str(moved / "config.toml"), "--json", cwd=tmp_path)
    summary = json.loads((moved / "summary.json").read_text())
    assert json.loads(again.stdout) == summary and len(summary["policy_code"]) == 64
    assert "code/constants.py" in (moved / "SHA256SUMS").read_text()
    (moved / "code" / "constants.py").write_text("FACTOR = 2.0\n")
    touched = fedtwin("run", str(moved / "config.toml"), "--json", cwd=tmp_path)
    assert (
        "code/constants.py changed since" in touched.stderr
        and json.loads(touched.stdout)["policy_code"] != summary["policy_code"]
    )
    for path in (moved / "code").rglob("*.py"):
        path.write_text("raise SystemExit('the code of a folder was run')\n")
    other = fedtwin("run", "--policy", "fairness", "--rounds", "30", "--out", "other", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    compared = fedtwin("compare", str(moved), "other", cwd=tmp_path)
    assert compared.returncode == 0 and "mine:POLICY" in compared.stdout, compared.stderr


def test_whose_a_module_is_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every module that is loaded is asked for every object that is given a name: thousands, in a notebook."""
    loaded = list(sys.modules)
    first = [is_users(name) for name in loaded]

    def read_again(distribution: str) -> str:
        raise AssertionError(f"the version of {distribution} was read before")

    monkeypatch.setattr(importlib.metadata, "version", read_again)
    assert [is_users(name) for name in loaded] == first and not is_users("numpy") and is_users(__name__)
