"""Processes that are started, heard, stopped and never left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedtwin.supervision import ProcessGroup, launch, stop, wait_until
from tests.conftest import LIMIT_S

SAYS = "import sys; print('out', flush=True); print('error: the end.', file=sys.stderr, flush=True)"
SLEEPS = "import time; print('here', flush=True); time.sleep(100)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def says(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_what_is_said_goes_to_files_and_a_second_start_adds_to_them(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        for _ in range(2):
            group.start("one", python(SAYS)).wait()
        assert says(tmp_path / "one.out") == "out\nout\n"
        assert group.log("one").count("the end") == 2 and group.last_words("one") == "the end."
        group.start("silent", python("pass")).wait()
        assert group.last_words("silent") == "without a word."


@pytest.mark.parametrize(("stop_s", "names"), [(0.0, "hears deaf frozen"), (0.2, "deaf"), (LIMIT_S, "hears frozen")])
def test_all_end_with_the_block_also_those_that_are_deaf_or_frozen(tmp_path: Path, stop_s: float, names: str) -> None:
    with pytest.raises(ZeroDivisionError), ProcessGroup(tmp_path, stop_s=stop_s) as group:
        for name in names.split():
            group.start(name, python(DEAF if name == "deaf" else SLEEPS))
        assert all(wait_until(lambda name=name: says(tmp_path / f"{name}.out"), LIMIT_S) for name in group.processes)  # type: ignore[misc]
        if "frozen" in group.processes:
            group.processes["frozen"].send_signal(signal.SIGSTOP)
        _ = 1 / 0
    ends = {name: process.returncode for name, process in group.processes.items()}
    asked = -signal.SIGTERM if stop_s else -signal.SIGKILL
    assert ends == {name: -signal.SIGKILL if name == "deaf" else asked for name in names.split()}
    group.stop()


def test_stopping_insists(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as output:
        process = launch(python(DEAF), output=output)
    assert wait_until(lambda: says(tmp_path / "out"), LIMIT_S)
    assert stop(process, 0.1) == stop(process, 0.1) == -signal.SIGKILL


PARENT = """
import sys, time
from fedtwin.supervision import launch
print(launch([sys.executable, "-c", "import time; time.sleep(100)"], outlives_us=sys.argv[1] == "outlives").pid, flush=True)
time.sleep(100)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ends with its parent on Linux only")
@pytest.mark.parametrize("fate", ["outlives", "dies"])
def test_a_child_ends_with_its_parent_unless_it_is_to_outlive_it(fate: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, fate], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def gone() -> bool:
        state = Path(f"/proc/{child}/stat")
        return not state.exists() or state.read_text().split()[2] == "Z"

    try:
        assert bool(wait_until(gone, LIMIT_S if fate == "dies" else 0.5)) == (fate == "dies")
    finally:
        if not gone():
            os.kill(child, signal.SIGKILL)
