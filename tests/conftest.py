"""What the tests share."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The test workers share the cores, and OpenMP threads that spin for each other would take them all.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("fedtwin", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fedtwin")

LIMIT_S = 120.0
Cli = Callable[..., subprocess.CompletedProcess[str]]
FEDTWIN = [sys.executable, "-W", "error", "-c", "from fedtwin.cli import main; main()"]


def run_cli(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [*FEDTWIN, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, check=False
    )


def until(condition: Callable[[], Any], what: str, process: "subprocess.Popen[Any] | None" = None) -> Any:
    """The first true value of the condition, however slow the machine is; an error once the process that brings it ends."""
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert process is None or process.poll() is None, f"{what}: the process ended with {process.returncode}"
        assert time.monotonic() < end, f"waited {LIMIT_S:g} s for: {what}"
        time.sleep(0.01)
    return found


def write_slow_policy(folder: Path) -> str:
    """A policy whose runs take a second or more for 40 rounds, however fast the simulator is; gives its name.

    Once the file ``slow`` is gone from the folder, they take no longer than others.
    """
    (folder / "slow").touch()
    (folder / "slow.py").write_text(
        "import os, time\n"
        "from fedtwin.policies import Policy\n"
        "def score(view, knobs):\n"
        f"    if os.path.exists({str(folder / 'slow')!r}):\n"
        "        time.sleep(0.001)\n"
        "    return view.samples\n"
        "POLICY = Policy(score, power='optimal')\n",
        encoding="utf-8",
    )
    return "slow:POLICY"


def mostly_slow(values: Iterable[Any], *quick: Any) -> list[Any]:
    """For ``parametrize``: of cases that are much alike, `make test` takes the quick ones, and `make test-all` all."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]


def hears_interrupts() -> None:
    """For ``preexec_fn``: a test run started in the background inherits a deaf ear for Ctrl-C, its commands must not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pages are begun first: one of them takes longest of all, and begun last it would be waited for alone."""
    items.sort(key=lambda item: "test_pages" not in item.nodeid)


@pytest.fixture(autouse=True)
def forgotten_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that a test wrote and imported is not found by the next test that writes one of the same name."""
    known, written = set(sys.modules), str(tmp_path_factory.getbasetemp())
    yield
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(written):
            del sys.modules[name]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The real command line in a process of its own, in an empty folder."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_cli(*arguments, cwd=tmp_path)

    return run
