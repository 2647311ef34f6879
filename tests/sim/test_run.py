"""``simulate`` and ``resume`` as their caller sees them, and what a plain run costs."""

import subprocess
import sys
from pathlib import Path


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
