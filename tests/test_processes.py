"""Worker processes and the script that starts them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FEDTWIN, hears_interrupts

TRAINING = """print('this script is run')
import fedtwin
settings = {'run.rounds': 20, 'learning.dataset': 'digits', 'learning.executor': 'processes', 'learning.workers': 2}
print(fedtwin.simulate(fedtwin.load_config(overrides=settings)).summary.rounds, 'rounds')
"""


@pytest.mark.slow
def test_a_script_that_trains_with_worker_processes_needs_no_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAINING, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "this script is run\n20 rounds\n"), done.stderr


INTERRUPTED_IN_A_DESTRUCTOR = """import signal
from fedtwin.policies.base import Policy

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def score(view, knobs):
    if view.round == 300:
        Dropped()
    return -view.queue

POLICY = Policy(score, power="optimal")
"""


def test_an_interrupt_that_python_drops_comes_again(tmp_path: Path) -> None:
    (tmp_path / "dropping.py").write_text(INTERRUPTED_IN_A_DESTRUCTOR, encoding="utf-8")
    command = [*FEDTWIN, "run", "--policy", "dropping:POLICY", "--rounds", "200000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=hears_interrupts)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    assert done.stderr.rstrip().endswith("interrupted")
