"""Several processes that need the same code."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtwin.compiling import cache, compiled, keep_on_disk
from fedtwin.compiling.turns import Turns
from tests.compiling.test_cache import plus_two

COMPILES = """
import sys
from pathlib import Path
from fedtwin.compiling import compiled, keep_on_disk
from tests.compiling.test_cache import plus_one
print("begun", flush=True)
sys.stdin.readline()
assert keep_on_disk(compiled(plus_one), Path(sys.argv[1]), "a test")(1) == 2
"""
HOLDS = """
import sys, time
from pathlib import Path
from fedtwin.compiling.turns import Turns
turns = Turns()
turns.wait(Path(sys.argv[1]))
print("has it", flush=True)
time.sleep(600)
"""


def test_only_one_of_several_processes_compiles(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", COMPILES, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
    said = []
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        said.append(process.communicate(timeout=120)[1])
        assert process.returncode == 0, said[-1]
    assert sum("Compiling a test" in text for text in said) == 1


def test_a_turn_ends_with_its_process_and_is_not_waited_for_without_end(tmp_path: Path) -> None:
    turns = Turns()
    assert not turns.wait(tmp_path) and not turns.wait(tmp_path), "it is this process that has it"
    turns.end()
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "has it\n"
        begun = time.monotonic()
        assert turns.wait(tmp_path, longest_s=0.2) and time.monotonic() - begun >= 0.2
        other.kill()
        other.wait()
        assert not turns.wait(tmp_path)
    turns.end()


def test_a_folder_that_cannot_be_written_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not Turns().wait(tmp_path / "file")


def test_a_turn_is_given_back_when_the_code_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_announced", set())
    assert keep_on_disk(compiled(plus_two), tmp_path, "a test")(1) == 3
    turns = Turns()
    assert not turns.wait(tmp_path)
    turns.end()
