"""What the tests share."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The test workers share the cores, and OpenMP threads that spin for each other would take them all.
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("fedtwin", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fedtwin")

Cli = Callable[..., subprocess.CompletedProcess[str]]
FEDTWIN = [sys.executable, "-W", "error", "-c", "from fedtwin.cli import main; main()"]


def run_cli(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [*FEDTWIN, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300, check=False
    )


def write_slow_policy(folder: Path) -> str:
    """A policy whose runs take a third of a second for 40 rounds, however fast the simulator is; gives its name."""
    (folder / "slow.py").write_text(
        "import time\n"
        "from fedtwin.policies import Policy\n"
        "def score(view, knobs):\n"
        "    time.sleep(0.0005)\n"
        "    return view.samples\n"
        "POLICY = Policy(score, power='optimal')\n",
        encoding="utf-8",
    )
    return "slow:POLICY"


def hears_interrupts() -> None:
    """For ``preexec_fn``: a test run started in the background inherits a deaf ear for Ctrl-C, its commands must not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The real command line in a process of its own, in an empty folder."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_cli(*arguments, cwd=tmp_path)

    return run
