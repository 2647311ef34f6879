"""The wheel, built and put into empty environments as a user does it, one per extra (`make test-wheel`, minutes).

Versions are those of constraints.txt. What is measured is printed: pytest -s.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtwin import __version__, live
from fedtwin.config import build_config
from tests.live.plant import events_of, until, write_model

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
CORE_BYTES, IDLE_BYTES = 120e6, 60e6
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")
POWER = "power --gain 1e-12 --cpu-hz 2e9 --samples 80 --json"
COMMANDS = {
    "sim": ["run --rounds 40 --set run.engine=compiled --out run", "plot run --out run.png", "compare --seeds 2 --rounds 40"],
    "live": ["provision fleet --server-name 127.0.0.1 --device d0"],
    "sim,learn": ["run --rounds 20 --set learning.dataset=digits --out learned"],
    "sim,export": ["run --rounds 20 --set learning.dataset=digits --out learned", "export learned --format onnx"],
    "examples": ["run --rounds 20"],
    "ray": ["compare --seeds 1 --rounds 20"],
    "page": ["serve --help"],
}
IMPORTS = {"examples": "import mlflow, pandas, tensorboard", "ray": "import ray", "page": "import fedtwin.service.server"}


class Installed:
    """An environment with nothing but ``fedtwin[extra]``."""

    def __init__(self, wheel: Path, extra: str, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        venv.create(folder / "venv", with_pip=True)
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        constraints = str(ROOT / "constraints.txt")
        self.ran(self.bin / "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", constraints, what)

    def ran(self, *words: str | Path, code: int = 0) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [str(word) for word in words], cwd=self.folder, env=clean, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def fedtwin(self, command: str, code: int = 0) -> str:
        return self.ran(self.bin / "fedtwin", *command.split(), code=code)

    @property
    def bytes(self) -> int:
        """Of all that was installed, what pip compiled included; pip itself is Python's."""
        packages = next((self.folder / "venv" / "lib").glob("python*/site-packages"))
        ours = [path for path in packages.iterdir() if not path.name.startswith(TOOLS)]
        return sum(file.lstat().st_size for top in ours for file in (top, *top.rglob("*")) if not file.is_dir())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def board(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    yield Installed(wheel, "", tmp_path_factory.mktemp("board"))


def test_a_board_s_installation_is_small_and_works(board: Installed) -> None:
    print(f"pip install fedtwin: {board.bytes / 1e6:.0f} MB")
    assert board.bytes < CORE_BYTES
    assert board.fedtwin("--version").strip() == __version__
    assert '"power_w"' in board.fedtwin(POWER)
    assert board.fedtwin("run", code=2) == "error: fedtwin run needs pyarrow and scipy: pip install 'fedtwin[sim]'.\n"
    edge = board.fedtwin("edge --out run", code=2)
    assert edge == "error: fedtwin edge needs prometheus_client and pyarrow: pip install 'fedtwin[live]'.\n"
    assert "fedtwin[live]" in board.fedtwin("provision fleet --device d0", code=2)
    assert not (board.folder / "run").exists()


def test_an_agent_that_waits_is_small(board: Installed, tmp_path: Path) -> None:
    config = build_config({}, {"fleet.devices": 2, "fleet.channels": 1, "run.rounds": 4, "live.time_scale": 0.2})
    model = write_model(tmp_path / "initial.safetensors")
    with live.LocalFleet(tmp_path / "fleet") as fleet:
        fleet.edge("--initial", model, "--no-evaluator", config=config)
        agent = [str(board.bin / "python"), "-I", "-m", "fedtwin", "device"]
        options = ["--server", fleet.url(), "--no-training", "--samples", "40", "--radio", "emulated"]
        fleet.start("d0", [*agent, "d0", *options])
        until(lambda: events_of(fleet.run, "joined"), "d0 joins, and waits for another")
        status = Path(f"/proc/{fleet.processes['d0'].pid}/status").read_text(encoding="utf-8")
        resident = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))
        print(f"an agent that waits: {resident / 1e6:.1f} MB resident")
        assert resident < IDLE_BYTES
        fleet.start("d1", [*agent, "d1", *options])
        assert fleet.processes["edge"].wait() == 0
    assert events_of(fleet.run, "applied")


@pytest.mark.parametrize("extra", COMMANDS)
def test_an_extra_brings_what_its_commands_need(wheel: Path, extra: str, tmp_path: Path) -> None:
    there = Installed(wheel, extra, tmp_path)
    print(f"pip install 'fedtwin[{extra}]': {there.bytes / 1e6:.0f} MB")
    assert there.fedtwin("--version").strip() == __version__
    for command in COMMANDS[extra]:
        there.fedtwin(command)
    if extra in IMPORTS:
        there.ran(there.bin / "python", "-c", IMPORTS[extra])
