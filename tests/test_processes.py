"""Worker processes and the script that starts them."""

import subprocess
import sys
from pathlib import Path

import pytest

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
