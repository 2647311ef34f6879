"""The examples run as they stand, as their readers would run them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS = {"own_policy": ("pandas", "matplotlib"), "tensorboard_run": ("torch", "tensorboard"), "mlflow_run": ("torch", "mlflow")}
LEAVES = {"own_policy": "own_policy.png", "tensorboard_run": "events.out.tfevents.*", "mlflow_run": "*/*/metrics/accuracy"}


def test_every_example_has_a_test_and_a_line_in_the_readme() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == NEEDS.keys() == LEAVES.keys()
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"({name}.py)" in page for name in NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    missing = [module for module in NEEDS[name] if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: pip install 'fedtwin[examples]'")
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--rounds", "40", "--out", str(tmp_path / "out")]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert said.returncode == 0, said.stderr
    left = list((tmp_path / "out").glob(LEAVES[name]))
    assert left and all(path.stat().st_size > 0 for path in left)
    assert str(tmp_path / "out") in said.stdout
