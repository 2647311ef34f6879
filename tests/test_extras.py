"""``pip install fedtwin`` is a board's: every command that needs more says so before it begins, and names the extra."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import fedtwin
from fedtwin import live
from fedtwin.cli.app import app
from fedtwin.errors import FedtwinError
from fedtwin.extras import require

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_ON_A_BOARD = ("pyarrow", "scipy", "matplotlib", "numba", "pandas", "torch", "cryptography", "prometheus_client",
                  "starlette", "uvicorn", "sse_starlette")  # fmt: skip
REFUSALS = [
    ("run", "fedtwin run needs pyarrow and scipy: pip install 'fedtwin[sim]'."),
    ("compare --seeds 1", "fedtwin compare needs pyarrow and scipy: pip install 'fedtwin[sim]'."),
    ("sweep spec.toml", "fedtwin sweep needs pyarrow and scipy: pip install 'fedtwin[sim]'."),
    ("whatif run", "fedtwin whatif needs pyarrow and scipy: pip install 'fedtwin[sim]'."),
    ("figure 3", "fedtwin figure needs pyarrow and scipy: pip install 'fedtwin[sim]'."),
    ("predict run data", "fedtwin predict needs torch: pip install 'fedtwin[learn]'."),
    ("export run --format onnx", "fedtwin export needs torch: pip install 'fedtwin[learn]'."),
    ("plot run", "fedtwin plot needs pyarrow and scipy: pip install 'fedtwin[sim]'."),
    ("data plot", "fedtwin data plot needs pyarrow and scipy: pip install 'fedtwin[sim]'."),
    ("edge --out run", "fedtwin edge needs prometheus_client and pyarrow: pip install 'fedtwin[live]'."),
    (
        "device d0 --server nats://127.0.0.1:4222",
        "Training here needs PyTorch: pip install 'fedtwin[learn]', or give --command.",
    ),
    ("serve run", "fedtwin serve needs starlette and uvicorn and sse_starlette and pyarrow: pip install 'fedtwin[page]'."),
    ("live demo", "fedtwin live demo needs prometheus_client and pyarrow: pip install 'fedtwin[live]'."),
]


@pytest.fixture
def on_a_board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NOT_ON_A_BOARD:
        monkeypatch.setitem(sys.modules, name, None)


def libraries(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_-]", one)[0].replace("-", "_") for one in requirements}


@pytest.mark.usefixtures("on_a_board")
@pytest.mark.parametrize(("command", "sentence"), REFUSALS, ids=[command for command, _ in REFUSALS])
def test_a_command_that_needs_more_than_a_board_has_names_the_extra(command: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(FedtwinError) as refused:
        app(command.split(), standalone_mode=False)
    assert str(refused.value) == sentence and not list(tmp_path.iterdir())


@pytest.mark.usefixtures("on_a_board")
@pytest.mark.parametrize(
    ("home", "name"), [(fedtwin, "simulate"), (fedtwin, "compare"), (fedtwin, "open_run"), (live, "serve")]
)
def test_from_python_it_is_the_same_sentence(home: object, name: str) -> None:
    with pytest.raises(FedtwinError, match=rf"{name} needs .*pyarrow.*: pip install 'fedtwin\[(sim|live)\]'"):
        getattr(home, name)


@pytest.mark.usefixtures("on_a_board")
def test_what_a_board_does_needs_no_extra(capsys: pytest.CaptureFixture[str]) -> None:
    app(["power", "--gain", "1e-9", "--cpu-hz", "1e9", "--samples", "50", "--json"], standalone_mode=False)
    app(["config", "schema"], standalone_mode=False)
    assert "power_w" in capsys.readouterr().out


def test_extras_bring_what_the_sentences_promise() -> None:
    extras = {name: libraries(wanted) for name, wanted in PROJECT["optional-dependencies"].items()}
    for _, sentence in REFUSALS:
        needed, extra = re.findall(r"needs (.*): pip install 'fedtwin\[(\w+)\]'", sentence.replace("PyTorch", "torch"))[0]
        assert set(needed.split(" and ")) <= extras[extra]
    assert not libraries(PROJECT["dependencies"]) & set(NOT_ON_A_BOARD)
    require("This", "sim", *sorted(extras["sim"]))
