"""Bad input to the commands of the live fleet: exit code 2, one sentence, nothing half-written."""

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.conftest import Cli
from tests.live.plant import events_of, plant, write_model

EDGE = ("edge", "--out", "run", "--initial", "model.safetensors")
DEVICE = ("device", "press-1", "--server", "nats://127.0.0.1:1", "--no-training", "--samples", 5)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def check(cli: Cli, folder: Path, arguments: tuple[object, ...], words: str) -> None:
    write_model(folder / "model.safetensors")
    (folder / "text.safetensors").write_text("this is no model")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = cli(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr, done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before, "nothing may be left behind"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*EDGE, "--server", "nats://10.0.0.1:4222"), "another machine, where TLS is required"),
        ((*EDGE, "--listen", "0.0.0.0:14222"), "without credentials"),
        ((*EDGE, "--listen", "nonsense"), "--listen 'nonsense' is not HOST:PORT"),
        ((*EDGE, "--server", "nats://127.0.0.1:1", "--listen", "127.0.0.1:14222"), "cannot be given with --server"),
        ((*EDGE, "--run", "my run"), "--run 'my run' is not allowed"),
        ((*EDGE, "--set", "run.sync_timeout_s=3"), "[run] sync_timeout_s = 3 ends synchronous rounds: mode must be 'sync'"),
        ((*EDGE, "--policy", "genie"), "is for simulations only"),
        ((*EDGE, "--time-scale", 0), "live.time_scale"),
        ((*EDGE, "--log-level", "nonsense"), "--log-level 'nonsense' is not allowed"),
        ((*EDGE, "--log-format", "xml"), "--log-format 'xml' is not allowed"),
        ((*EDGE, "--metrics", "nonsense"), "--metrics 'nonsense' cannot be served"),
        ((*EDGE, "--metrics", "127.0.0.1:99999"), "--metrics '127.0.0.1:99999' cannot be served"),
        ((*EDGE, "--credentials", "nowhere"), "lack a readable ca.pem"),
        (("edge", "--out", "run", "--initial", "text.safetensors"), "The model 'text.safetensors' cannot be read"),
        (("edge", "--out", "run", "--initial", "missing.safetensors"), "cannot be read: No such file"),
        (("edge", "--out", "run"), "The run needs a model to start from"),
        (("edge", "--initial", "model.safetensors"), "One of --out DIR"),
        (("edge", "--out", "a", "--state", "b"), "give one of them"),
        (("edge", "--resume", "."), "is not the folder of a live run"),
        (("edge", "--resume", "missing"), "is not the folder of a live run"),
        (("edge", "--resume", ".", "--rounds", 5), "leave the others out"),
        (("device", "press 1", *DEVICE[2:]), "NAME 'press 1' is not allowed"),
        (("device", "x" * 65, *DEVICE[2:]), "1 to 64 letters"),
        (("device", "edge", *DEVICE[2:]), "NAME 'edge' is not allowed: it is the edge server's own"),
        ((*DEVICE, "--run", "a.b"), "--run 'a.b' is not allowed"),
        (("device", "press-1", "--no-training", "--samples", 5), "--server URL is needed"),
        (("device", "press-1", "--server", "nats://10.0.0.1:4222", "--no-training", "--samples", 5), "TLS is required"),
        (("device", "press-1", "--server", "nats://127.0.0.1:1", "--no-training"), "need --samples N"),
        ((*DEVICE, "--command", "true"), "exclude each other"),
        ((*DEVICE[:4], "--samples", 5, "--command", "'"), "cannot be split into words"),
        ((*DEVICE[:4], "--samples", 5, "--command", "./no-train --fast"), "there is no program './no-train' here"),
        ((*DEVICE[:4], "--data", "no.npz"), "--data 'no.npz' is not there: put this device's samples there"),
        ((*EDGE, "--ship-code"), "--ship-code has nothing to ship"),
        ((*DEVICE, "--insecure", "--accept-code"), "--accept-code with --insecure needs --code-digest"),
        ((*DEVICE, "--radio", "smoke"), "--radio 'smoke' is not allowed"),
        (("evaluator",), "--server URL is needed"),
        (("live", "demo", "--out", "run", "--time-scale", 0), "live.time_scale"),
    ],
    ids=lambda value: " ".join(map(str, value[-3:])) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_sentence(cli: Cli, tmp_path: Path, arguments: tuple[object, ...], words: str) -> None:
    check(cli, tmp_path, arguments, words)


def test_ports_that_are_taken_are_said_before_a_folder_is_made(cli: Cli, tmp_path: Path, taken: int) -> None:
    check(cli, tmp_path, (*EDGE, "--metrics", f"127.0.0.1:{taken}"), "cannot be served: it must be HOST:PORT and free")
    check(cli, tmp_path, (*EDGE, "--listen", f"127.0.0.1:{taken}"), f"--listen: 127.0.0.1:{taken} cannot be listened on")
    check(cli, tmp_path, (*EDGE, "--mqtt-port", taken), f"--mqtt-port: 127.0.0.1:{taken} cannot be listened on")


def test_a_folder_that_exists_is_not_written_to(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    write_model(tmp_path / "model.safetensors")
    for arguments in (EDGE, ("live", "demo", "--out", "run"), ("edge", "--state", "run", "--initial", "model.safetensors")):
        done = cli(*arguments)
        assert done.returncode == 2 and "exists already" in done.stderr and done.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_board_whose_images_are_of_another_shape_is_told_when_it_joins(tmp_path: Path) -> None:
    """The digits are 8 × 8; a board with pictures of 4 × 4 would fail in every task."""
    pytest.importorskip("torch")
    x, y = np.arange(40 * 16, dtype=np.uint8).reshape(40, 4, 4), np.arange(40) % 10
    np.savez(tmp_path / "small.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    shapes = {
        "1.weight": (64, 64),
        "1.bias": (64,),
        "3.weight": (64, 64),
        "3.bias": (64,),
        "5.weight": (10, 64),
        "5.bias": (10,),
    }
    save_file({name: np.ones(shape, np.float32) for name, shape in shapes.items()}, tmp_path / "mlp.safetensors")
    with plant(tmp_path) as fleet:
        settings = {"learning__dataset": "digits", "fleet__devices": 1, "fleet__channels": 1}
        fleet.edge("--out", fleet.run, "--initial", tmp_path / "mlp.safetensors", "--rounds", 3, **settings)
        fleet.device("d0", fleet.url(), "--data", tmp_path / "small.npz")
        assert fleet.ended("d0") == 2
        said = fleet.log("d0").splitlines()[-1]
        assert said.startswith(
            "error: The edge server refuses 'd0': model: 1.weight has shape (64, 16) with this device's data"
        )
        assert "(64, 64) in the run" in said and "learning.dataset = 'digits'" in said
        assert not events_of(fleet.run, "joined") and "refused" in fleet.log("edge") and "(64, 16)" in fleet.log("edge")
