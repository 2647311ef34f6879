"""Which releases of Python are supported is said once, and one that does not run is not taken for one that is there."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import python_versions
from tests.python_versions import OWN, ROOT, find, supported


def test_what_pip_admits_is_what_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minors = [int(version.removeprefix("3.")) for version in supported()]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert project["requires-python"] == f">=3.{minors[0]},<3.{minors[-1] + 1}"
    assert f"Python {supported()[0]} to {supported()[-1]}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert OWN in supported()


def test_only_an_interpreter_that_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shims, pyenv = tmp_path / "shims", tmp_path / "pyenv" / "versions" / f"{OWN}.9" / "bin"
    for folder in (shims, pyenv):
        folder.mkdir(parents=True)
    name = f"python{OWN}"
    (shims / name).write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n", encoding="utf-8")
    (shims / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find(OWN) is None
    (shims / "python3.1").symlink_to(sys.executable)
    assert find("3.1") is None, "it says another version"
    (pyenv / name).symlink_to(sys.executable)
    assert find(OWN) == pyenv / name


@pytest.mark.parametrize("code", [0, 2])
def test_a_failure_on_any_release_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    made: list[list[str]] = []

    def make(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        made.append(command)
        return subprocess.CompletedProcess(command, code if "3.98" in command[2] else 0)

    monkeypatch.setattr(python_versions, "supported", lambda: ["3.97", "3.98", "3.99", OWN])
    monkeypatch.setattr(python_versions, "find", lambda version: None if version == "3.97" else Path(f"/there/python{version}"))
    monkeypatch.setattr(subprocess, "run", make)
    with pytest.raises(SystemExit) as ended:
        python_versions.main()
    assert bool(ended.value.code) == bool(code)
    assert made == [["make", "test-python", f"PYTHON=/there/python{v}", f"VENV=.venv-{v}"] for v in ("3.98", "3.99")]
    said = re.findall(r"^Python (3\.\d+): (\w+)", capsys.readouterr().out, re.MULTILINE)[-4:]
    assert said == [("3.97", "NOT"), ("3.98", "FAILED" if code else "engine"), ("3.99", "engine"), (OWN, "tested")]
