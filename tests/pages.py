"""Pages of the docs as scripts: the files they show are written, their commands and programs run, in order, in one folder."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\S+\.(?:py|toml|csv))\n")
NOT_RUN = {
    r"make ": "sets up and tests: this is what runs the tests",
    r"pip install": "what it installs is what the tests run with",
    r"fedtwin data fetch": "the Internet; tests/learning/data has it with a server of its own",
    r".*--ray (auto|10\.)": "a cluster that is there already; tests/experiments has it with real nodes",
}


class Block(NamedTuple):
    """One fenced block: what is written in it, and the file it is, if it is one."""

    language: str
    text: str
    file: str | None


def blocks_of(page: Path) -> list[Block]:
    found = [Block(language, text, None) for language, text in FENCE.findall(page.read_text(encoding="utf-8"))]
    return [block._replace(file=name.group(1)) if (name := FILE.match(block.text)) else block for block in found]


def run_page(page: Path, folder: Path, *, timeout_s: float = 300) -> int:
    """Everything the page shows, as it stands there. Returns how many blocks ran; the first that fails is an error."""
    ran = 0
    for block in blocks_of(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh" and (commands := _to_be_run(block.text)):
            _run(["bash", "-eu", "-o", "pipefail", "-c", commands], block, folder, timeout_s)
            ran += 1
        elif block.language == "python":
            _run([sys.executable, "-W", "error", "-c", block.text], block, folder, timeout_s)
            ran += 1
    return ran


def _to_be_run(commands: str) -> str:
    return "\n".join(
        line for line in commands.splitlines() if line.strip() and not any(re.match(rule, line) for rule in NOT_RUN)
    )


def _run(command: list[str], block: Block, folder: Path, timeout_s: float) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
        "MPLBACKEND": "agg",
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complained = process.communicate(timeout=timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{block.text}\nended with {process.returncode}:\n{said}\n{complained}"
    assert "Traceback" not in complained and not re.search(r"^(warning|error):", complained, re.MULTILINE), complained
