"""A policy, a channel and an aggregation rule outside of the repository: a package with entry points, installed by pip."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import fedtwin
from fedtwin import FedtwinError, FedtwinWarning, simulate
from fedtwin.policies import load_policy
from fedtwin.registry import installed
from tests.pages import ROOT, blocks_of

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "my-fleet"
version = "1.2.3"
[tool.setuptools]
packages = ["my_fleet"]
[project.entry-points."fedtwin.policies"]
patient = "my_fleet.patient:POLICY"
[project.entry-points."fedtwin.channels"]
rain = "my_fleet.weather:CHANNEL"
[project.entry-points."fedtwin.aggregators"]
momentum = "my_fleet.momentum:RULE"
"""
CHECKS = """
from fedtwin.testing import check_aggregator, check_policy, check_world
check_aggregator("momentum")
print(check_policy("patient", {"memory": 0.4}))
print(check_world("rain"))
"""


class Installed:
    """An empty environment with the package; fedtwin and what it needs are those that the tests run with."""

    def __init__(self, folder: Path) -> None:
        self.folder, package = folder, folder / "source" / "my_fleet"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package.parent / "pyproject.toml").write_text(PYPROJECT)
        for block in blocks_of(ROOT / "docs" / "own_code.md"):
            if block.file in ("patient.py", "weather.py", "momentum.py"):
                (package / block.file).write_text(block.text, encoding="utf-8")
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        [libraries] = (folder / "venv").glob("lib/python*/site-packages")
        paths = [Path(fedtwin.__file__).parents[1], sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        (libraries / "what_the_tests_run_with.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(paths)))
        pip = (sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "--quiet")
        self._run(*pip, "install", "--no-deps", "--no-index", "--no-build-isolation", package.parent)

    def fedtwin(self, *arguments: object) -> str:
        return self._run(self.python, "-W", "error", "-m", "fedtwin", *arguments)

    def program(self, text: str) -> str:
        return self._run(self.python, "-W", "error", "-c", text)

    def _run(self, *command: object) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PATH": path}
        done = subprocess.run(
            [*map(str, command)], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_the_name_that_a_package_brings_is_used_like_fedtwins_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = {block.file: block.text for block in blocks_of(ROOT / "docs" / "own_code.md")}
    for file in ("patient.py", "weather.py"):
        (tmp_path / f"my_{file}").write_text(page[file], encoding="utf-8")
    about = tmp_path / "my_parts-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1.0\n")
    points = {"policies": "patient = my_patient:POLICY\ncu-ucb = my_patient:POLICY", "channels": "rain = my_weather:CHANNEL"}
    (about / "entry_points.txt").write_text("".join(f"[fedtwin.{kind}]\n{lines}\n" for kind, lines in points.items()))
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.cache_clear()
    try:
        with pytest.warns(FedtwinWarning, match=r"^'cu-ucb' of fedtwin\.policies is fedtwin's own"):
            installed("policies")
        settings = {"run.rounds": 60, "run.engine": "readable", "policy.settings.memory": 0.4}
        by_name, by_place = (
            simulate({**settings, "policy.name": policy, "world.channel": channel})
            for policy, channel in (("patient", "rain"), ("my_patient:POLICY", "my_weather:CHANNEL"))
        )
        assert by_name.rounds.equals(by_place.rounds)
        assert by_name.identity.code.keys() == {"policy.name", "world.channel"}
        assert load_policy("cu-ucb").state is None, "fedtwin's own names stay its own"
        with pytest.raises(FedtwinError, match=r"'patent' is not allowed: choose one of cu-ucb, .*, patient, CU-UCB"):
            simulate({"policy.name": "patent"})
    finally:
        installed.cache_clear()


@pytest.mark.slow
def test_a_package_with_entry_points_keeps_its_word_and_runs_in_both_engines_and_live(tmp_path: Path) -> None:
    package = Installed(tmp_path)
    assert package.program(CHECKS).count("compiled=True") == 2
    for engine in ("readable", "compiled"):
        options = ("--policy", "patient", "--set", "world.channel=rain", "--set", f"run.engine={engine}", "--out", engine)
        package.fedtwin("run", "--rounds", 300, "--set", "policy.settings.memory=0.4", *options)
    one, other = (pq.read_table(tmp_path / engine / "rounds.parquet") for engine in ("readable", "compiled"))
    assert one.equals(other) and one.num_rows >= 300

    rule = ("--set", "learning.aggregation=momentum", "--set", "learning.aggregation_settings.beta=0.4")
    package.fedtwin(
        "run", "--rounds", 20, "--policy", "patient", *rule, "--set", "learning.executor=serial", "--out", "trained"
    )
    package.fedtwin(
        "live", "demo", "--devices", 3, "--rounds", 12, "--time-scale", 0.05, "--policy", "patient", *rule, "--out", "live"
    )
    for name in ("trained", "live"):
        summary = (tmp_path / name / "summary.json").read_text(encoding="utf-8")
        assert '"policy_code"' in summary and '"aggregation_code"' in summary, name
