"""``simulate`` and ``resume`` as their caller sees them, and what a plain run costs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin import FedtwinError, simulate


def test_a_plain_run_with_records_imports_neither_pandas_nor_scipy_nor_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from fedtwin.cli import main\n"
        "sys.argv = ['fedtwin', 'run', '--rounds', '50', '--out', sys.argv[1]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('loaded', *(name for name in ('pandas', 'scipy', 'torch', 'numba') if name in sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=True)
    assert (tmp_path / "run" / "rounds.parquet").is_file()
    assert said.stdout.splitlines()[-1].split() == ["loaded"]


@pytest.mark.parametrize("engine", ["readable", "compiled"])
@pytest.mark.parametrize("checkpoints", [[1.5], [0], [-1], [5, 21], [True], [None], [[1]], ["1"], "12", 5, np.array([1.5])])
def test_checkpoints_that_are_no_rounds_of_the_run_are_refused(engine: str, checkpoints: Any) -> None:
    with pytest.raises(FedtwinError, match=r"checkpoints = .* must be a list of rounds, whole numbers from 1 to 20\."):
        simulate({"run.rounds": 20, "run.engine": engine}, checkpoints=checkpoints)


@pytest.mark.parametrize("engine", ["readable", "compiled"])
def test_checkpoints_are_rounds_in_any_order_and_form(engine: str) -> None:
    for checkpoints in ([20, 1, 5, 5], np.array([1, 5, 20]), range(5, 21, 5), (round_ for round_ in (3, 4))):
        rounds = simulate({"run.rounds": 20, "run.engine": engine}, checkpoints=checkpoints).series.rounds  # type: ignore[arg-type]
        assert rounds[-1] in (4, 20) and rounds == sorted(set(rounds))
