"""What a device does with a model."""

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError
from fedtwin.live.device import trainers
from fedtwin.live.device.planner import Offer
from fedtwin.live.device.sending import Sending
from fedtwin.live.device.torch_trainer import TorchTrainer
from fedtwin.live.device.trainers import (
    CommandTrainer,
    NoTrainer,
    Trainer,
    TrainingError,
    Update,
    prepared,
    require_sensing,
    train_on,
)
from fedtwin.live.device.work import TaskWork
from fedtwin.live.wire.protocol import Own
from fedtwin.live.wire.tensors import Codec
from tests.conftest import LIMIT_S, until


def python(folder: Path, code: str, samples: int = 7, limit_s: float = LIMIT_S) -> CommandTrainer:
    (folder / "train.py").write_text(f"import json, os, sys, time\nfrom pathlib import Path\n{code}\n", encoding="utf-8")
    trainer = CommandTrainer(f"{sys.executable} '{folder / 'train.py'}'", samples, limit_s)
    assert trainer.prepare(Config()) == samples
    return trainer


COPY = "Path(os.environ['FEDTWIN_UPDATE']).write_bytes(Path(os.environ['FEDTWIN_MODEL']).read_bytes()[::-1])"


class Plain:
    """As users wrote them before samples could vary."""

    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return 5

    def train(self, model: bytes, round_: int) -> Update:  # noqa: ARG002
        return Update(model, None)

    def stop(self) -> None:
        pass


def test_who_cannot_train_on_another_number_cannot_be_a_device_whose_samples_vary() -> None:
    require_sensing(Plain(), Own(max_power_w=0.1))
    require_sensing(NoTrainer(5), Own(samples_spread=0.2))
    with pytest.raises(FedtwinError, match=r"The trainer Plain has no train_on.*fleet\.samples_spread"):
        require_sensing(Plain(), Own(samples_spread=0.2))


@pytest.mark.parametrize("answer", [0, -3, None, 2.5, "7"])
def test_who_prepares_says_how_many_samples_a_training_takes(answer: object) -> None:
    trainer = SimpleNamespace(prepare=lambda _: answer)
    with pytest.raises(FedtwinError, match=r"^The trainer SimpleNamespace answers .* in prepare\(config\): .* from 1\.$"):
        prepared(cast(Trainer, trainer), Config())
    assert prepared(Plain(), Config()) == prepared(NoTrainer(cast(int, np.int64(5))), Config()) == 5


def test_a_trainer_that_exits_fails_as_one_with_any_other_error() -> None:
    class Exiting(NoTrainer):
        def train_on(self, model: bytes, round_: int, samples: int) -> Update:  # noqa: ARG002
            sys.exit()

    work = SimpleNamespace(_trainer=Exiting(40), _sending=Sending(Config()), _samples=50)
    with pytest.raises(TrainingError, match=r"^SystemExit \(.*test_trainers\.py, line \d+\)$"):
        TaskWork._trained(cast(TaskWork, work), b"model", 1, 40)


@pytest.mark.parametrize(("compute_s", "told"), [(0.1, True), (100.0, False)])
def test_a_training_that_takes_much_longer_than_it_was_to_is_told_of_once(
    compute_s: float, told: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedtwin.live.device.work.LONG_S", 0.2)

    async def in_a_thread(*_: object) -> str:
        await asyncio.sleep(1.0)
        return "trained"

    ports, offer = (
        SimpleNamespace(in_a_thread=in_a_thread),
        SimpleNamespace(plan=SimpleNamespace(compute_s=compute_s), samples=5),
    )
    work = SimpleNamespace(_ports=ports, _trained=None, _name="d0", _time_scale=0.5)
    trained: object = asyncio.run(TaskWork._train(cast(TaskWork, work), 3, b"", cast(Offer, offer)))
    said = [record for record in caplog.records if record.getMessage() == "the training still goes on"]
    assert trained == "trained" and len(said) == told
    assert all(one.__dict__["fields"] == {"device": "d0", "round": 3, "expected_s": 0.05} for one in said)


def test_no_training_gives_the_model_back() -> None:
    trainer = NoTrainer(12)
    assert trainer.prepare(Config()) == 12
    assert trainer.train(b"abc", 1) == (b"abc", None)
    trainer.stop()


def test_a_command_gets_the_model_and_the_settings(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    code = f"{COPY}\nPath({str(told)!r}).write_text(json.dumps({{k: v for k, v in os.environ.items() if 'FEDTWIN' in k}}))"
    trainer = python(tmp_path, code)
    trainer.prepare(build_config({}, {"learning.local_epochs": 3}))
    assert trainer.train(b"abc", 5) == (b"cba", None)
    environment = json.loads(told.read_text(encoding="utf-8"))
    assert environment["FEDTWIN_ROUND"] == "5" and environment["FEDTWIN_SAMPLES"] == "7"
    assert json.loads(environment["FEDTWIN_LEARNING"])["local_epochs"] == 3 and environment["FEDTWIN_RATE"] == "0.05"
    assert not Path(environment["FEDTWIN_MODEL"]).exists(), "nothing is left behind"
    assert train_on(trainer, b"abc", 6, 4, 7) == (b"cba", None)
    assert json.loads(told.read_text(encoding="utf-8"))["FEDTWIN_SAMPLES"] == "4"
    trainer.prepare(build_config({}, {"learning.rate_schedule": "linear", "run.rounds": 4}))
    trainer.train(b"abc", 2)
    assert float(json.loads(told.read_text(encoding="utf-8"))["FEDTWIN_RATE"]) == 0.05 * 0.75


@pytest.mark.parametrize(
    ("report", "loss"),
    [('{"train_loss": 0.25}', 0.25), ("{}", None), ("[]", None), ("nonsense", None), ('{"train_loss": "much"}', None)],
)
def test_a_report_is_read_if_it_can_be(tmp_path: Path, report: str, loss: float | None) -> None:
    trainer = python(tmp_path, f"{COPY}\nPath(os.environ['FEDTWIN_REPORT']).write_text({report!r})")
    assert trainer.train(b"abc", 1).train_loss == loss


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("sys.exit('no oil left')", "ended with 1: no oil left"),
        ("sys.exit(3)", "ended with 3: no message"),
        ("sys.stderr.buffer.write(bytes([255])); sys.exit(2)", "ended with 2: "),
        ("pass", "wrote no FEDTWIN_UPDATE"),
        ("time.sleep(30)", "took longer than 0.5 s"),
    ],
)
def test_a_command_that_fails_says_why(tmp_path: Path, code: str, words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        python(tmp_path, code, limit_s=0.5 if "sleep" in code else LIMIT_S).train(b"abc", 1)


def test_what_a_command_prints_is_its_own_business(tmp_path: Path) -> None:
    trainer = python(tmp_path, f"{COPY}\nfor out in (sys.stdout, sys.stderr): out.buffer.write(bytes([255]) * 200_000)")
    assert trainer.train(b"abc", 1).body == b"cba"


SHELL = "import subprocess; subprocess.run(['sleep', '60']); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def children(mark: Path) -> list[int]:
    """Of this test: they have its folder in their environment."""
    found = [one for one in Path("/proc").iterdir() if one.name.isdigit() and int(one.name) != os.getpid()]
    return [int(one.name) for one in found if str(mark).encode() in _environment_of(one)]


def _environment_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells who runs on Linux only")
@pytest.mark.parametrize("deaf", ["", DEAF], ids=["hears", "deaf"])
@pytest.mark.parametrize("why", ["limit", "stop"])
def test_a_command_ends_with_all_that_it_has_started(
    why: str, deaf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainers, "STOP_S", 0.5)
    monkeypatch.setenv("MARK", str(tmp_path))
    trainer = python(tmp_path, f"{deaf}{SHELL}", limit_s=5.0 if why == "limit" else 50.0)
    thread, failed = in_the_background(trainer)
    until(lambda: len(children(tmp_path)) == 2, "the command and its child")
    if why == "stop":
        trainer.stop()
    thread.join(20.0)
    assert not thread.is_alive() and failed
    assert ("took longer than 5 s" if why == "limit" else f"ended with {-9 if deaf else -15}") in failed[0]
    until(lambda: not children(tmp_path), "that they end")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells who runs on Linux only")
def test_what_a_command_leaves_running_is_not_waited_for_and_asked_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logger, say: it holds what the command said on standard error."""
    monkeypatch.setenv("MARK", str(tmp_path))
    trainer = python(tmp_path, f"import subprocess\n{COPY}\nsubprocess.Popen(['sleep', '60'])")
    thread, failed = in_the_background(trainer)
    thread.join(20.0)
    assert not thread.is_alive() and not failed
    until(lambda: not children(tmp_path), "that they end")


def in_the_background(trainer: CommandTrainer) -> tuple[threading.Thread, list[str]]:
    """A training, and why it failed."""
    failed: list[str] = []

    def work() -> None:
        try:
            trainer.train(b"abc", 1)
        except TrainingError as error:
            failed.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, failed


def test_a_command_can_be_stopped(tmp_path: Path) -> None:
    trainer = python(tmp_path, f"Path({str(tmp_path / 'mark')!r}).touch(); time.sleep(30)")
    trainer.stop()
    thread, failed = in_the_background(trainer)
    until((tmp_path / "mark").exists, "the command")
    trainer.stop()
    thread.join(LIMIT_S)
    assert failed and "ended with -15" in failed[0]


@pytest.mark.parametrize(("command", "words"), [("'", "cannot be split into words"), ("  ", "--command is empty")])
def test_a_command_must_be_words(command: str, words: str) -> None:
    with pytest.raises(FedtwinError, match=words):
        CommandTrainer(command, 5)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(TrainingError, match="/no/such/program cannot be run: No such file"):
        CommandTrainer("/no/such/program x", 5).train(b"", 1)


def test_pytorch_trains_the_same_way_every_time() -> None:
    from fedtwin.live.server.evaluator import initial_model

    config = build_config({}, {"learning.model": "mlp", "fleet.devices": 4, "fleet.channels": 2})
    trainer = TorchTrainer("press-1", None, None, 2)
    samples = trainer.prepare(config)
    assert 0 < samples <= 500
    model = initial_model(config)
    first, second, other = trainer.train(model, 1), trainer.train(model, 1), trainer.train(model, 2)
    assert first == second and first.body != other.body and first.body != model
    assert first.train_loss is not None and 0.0 < first.train_loss < 10.0
    codec = trainer._codec
    assert isinstance(codec, Codec) and np.isfinite(codec.decode(first.body).floats).all()
    fewer = train_on(trainer, model, 1, samples - 1, samples)
    assert train_on(trainer, model, 1, samples, samples) == first != fewer
    with pytest.raises(TrainingError, match="does not fit"):
        trainer.train(b"nonsense", 1)


def test_pytorch_must_be_prepared() -> None:
    with pytest.raises(TrainingError, match="not prepared"):
        TorchTrainer("press-1", None, None, None).train(b"", 1)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_training_that_has_diverged_is_the_devices_to_tell(loss: float) -> None:
    """Its weights may still be finite: the edge server would mix them in."""

    class Diverging(NoTrainer):
        def train_on(self, model: bytes, round_: int, samples: int) -> Update:  # noqa: ARG002
            return Update(model, loss)

    work = SimpleNamespace(_trainer=Diverging(40), _sending=Sending(Config()), _samples=50)
    with pytest.raises(TrainingError, match=rf"^the training loss is {loss:g}: its learning rate may be too large$"):
        TaskWork._trained(cast(TaskWork, work), b"model", 1, 40)
