"""Pages of the docs as scripts: the files they show are written, their commands and programs run, in order, in one folder.

Programs of a page share their names, as the cells of a notebook do, and its commands one shell.
"""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fedtwin.config import load_config
from fedtwin.learning.data.catalog import cached_folder

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\S+\.(?:py|toml|csv))\n")
SWEEP = re.compile(r"^(seeds =|\[grid\])", re.MULTILINE)
NOT_RUN = {
    r"make ": "sets up and tests: this is what runs the tests",
    r"pip install": "what it installs is what the tests run with",
    r"fedtwin data fetch": "the Internet; tests/learning/data has it with a server of its own",
    r".*--ray ": "Ray is an extra; tests/experiments/batches has it with real nodes",
}
FETCHED_FIRST = r".*(fashion-mnist|figure headline)"
"""Not run where the data have not been fetched: ``make test-all`` does that."""


class Block(NamedTuple):
    """One fenced block: what is written in it, and the file it is, if it is one."""

    language: str
    text: str
    file: str | None


def blocks_of(page: Path) -> list[Block]:
    found = [Block(language, text, None) for language, text in FENCE.findall(page.read_text(encoding="utf-8"))]
    return [block._replace(file=name.group(1)) if (name := FILE.match(block.text)) else block for block in found]


DRIVER = """
import atexit, json, os, signal, subprocess, sys
from pathlib import Path
steps, names = json.loads(sys.stdin.read()), {"__name__": "__main__"}
done, told = os.pipe()
shell = subprocess.Popen(["bash", "-eu", "-o", "pipefail"], stdin=subprocess.PIPE, pass_fds=[told], text=True)
os.close(told)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
atexit.register(os.killpg, 0, signal.SIGTERM)  # what it has left running
for kind, text, file in steps:
    if file:
        Path(file).write_text(text, encoding="utf-8")
    elif kind == "sh":
        Path(".step.sh").write_text(text, encoding="utf-8")
        shell.stdin.write(f". ./.step.sh </dev/null {told}>&-; echo >&{told}\\n")
        shell.stdin.flush()
        if not os.read(done, 1):
            sys.exit(f"ended with {shell.wait()}: {text}")
    else:
        exec(compile(text, "<page>", "exec"), names)
shell.stdin.close()
shell.wait()
"""


def steps_of(page: Path) -> list[Block]:
    """What is to be done, in order: files to write, commands, programs."""
    steps = [
        block._replace(text=_to_be_run(block.text)) if block.language == "sh" else block
        for block in blocks_of(page)
        if block.file or block.language in ("sh", "python")
    ]
    return [step for step in steps if step.text]


def run_page(page: Path, folder: Path, *, timeout_s: float = 300) -> str:
    """Everything the page shows, as it stands there; what fails, warns or cannot be read as settings is an error."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
        "MPLBACKEND": "agg",
    }
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", DRIVER],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complained = process.communicate(json.dumps(steps_of(page)), timeout=timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{said}\n{complained}"
    assert "Traceback" not in complained and not re.search(r"^(warning|error):", complained, re.MULTILINE), complained
    for block in blocks_of(page):
        if block.file is not None and block.file.endswith(".toml") and not SWEEP.search(block.text):
            load_config(folder / block.file)
    return said


def _to_be_run(commands: str) -> str:
    rules = [*NOT_RUN, *([] if (cached_folder("fashion-mnist") / "complete").exists() else [FETCHED_FIRST])]
    return "\n".join(line for line in commands.splitlines() if line.strip() and not any(re.match(rule, line) for rule in rules))
