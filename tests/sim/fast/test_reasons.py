"""Numba's explanations become one line in plain letters, whether it colours them or not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedtwin.sim.fast.reasons import reason_in

COLORAMA = """
__version__ = "0.4.6"
init = reinit = deinit = lambda: None
class Fore:
    BLACK = BLUE = CYAN = GREEN = MAGENTA = RED = WHITE = YELLOW = "\\x1b[31m"
class Style:
    BRIGHT, RESET_ALL = "\\x1b[1m", "\\x1b[0m"
"""
FAILS = """
from numba import njit
from numba.core.errors import NumbaError
from fedtwin.sim.fast.reasons import reason_in

TABLE = {0: "even"}

def looks_at_a_table(device):
    return len(TABLE[device])

try:
    njit(looks_at_a_table)(0)
except NumbaError as error:
    print("\\x1b[" in str(error), reason_in(str(error)), sep="\\n")
"""


@pytest.mark.parametrize(
    ("explanation", "reason"),
    [
        (
            "\x1b[1mFailed in nopython mode pipeline (step: nopython frontend)\n"
            "\x1b[1m\x1b[1m\x1b[1mUntyped global name 'TABLE':\x1b[0m \x1b[1m\x1b[1mCannot type empty dict.\x1b[0m\n"
            '\x1b[1m\nFile "a.py", line 3:\x1b[0m\n\x1b[1mdef score(view, knobs):\x1b[0m\n',
            "Untyped global name 'TABLE': Cannot type empty dict",
        ),
        ("\x1b[34m\x1b[1m\x1b[0m\n\x1b[38;5;208mNo implementation.\x1b[0m", "No implementation"),
        ("\x1b[1mFailed in nopython mode pipeline\x1b[0m\n\x1b[0m", "of unknown reason"),
        ("Failed in nopython mode pipeline\nNo implementation:\n", "No implementation"),
    ],
    ids=["bold", "coloured", "nothing", "plain"],
)
def test_the_reason_is_the_first_line_that_says_something(explanation: str, reason: str) -> None:
    assert reason_in(explanation) == reason


@pytest.mark.parametrize("coloured", [True, False])
def test_the_reason_is_the_same_with_and_without_colours(tmp_path: Path, coloured: bool) -> None:
    (tmp_path / "colorama.py").write_text(COLORAMA, encoding="utf-8")
    (tmp_path / "fails.py").write_text(FAILS, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    if not coloured:
        environment["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"
    run = subprocess.run(
        [sys.executable, tmp_path / "fails.py"], capture_output=True, text=True, env=environment, timeout=300, check=True
    )
    has_codes, reason = run.stdout.splitlines()
    assert has_codes == str(coloured)
    assert reason.startswith("Untyped global name 'TABLE'") and "\x1b" not in reason
