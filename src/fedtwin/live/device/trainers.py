"""What a device does with a model: hand it to a command, or nothing; ``torch_trainer`` trains it on the device's own data."""

import json
import operator
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.learning.rates import rate_of
from fedtwin.live.wire.protocol import Own
from fedtwin.supervision import Process, exit_code, launch, stop_group

COMMAND_LIMIT_S, STOP_S = 3600.0, 5.0
MOST_LAST_WORDS_BYTES = 10_000


class Update(NamedTuple):
    """A trained model as safetensors bytes, and its mean training loss."""

    body: bytes
    train_loss: float | None


class TrainingError(Exception):
    """Why a training came to nothing, in a few words."""


class Trainer(Protocol):
    """``prepare`` once for a run, answers the samples of a training; ``train`` as often as asked; ``stop`` cuts it short.

    One that also has ``tensors``, the shapes by name of the network it has prepared, is refused at once where they do not fit.
    One that also has ``lacks_code(config)``, whether code of the run's own is not here, may get it from the edge.
    One with samples of its own has ``moments`` of them, takes the run's normalisation by ``normalise`` before it trains, and
    tells by ``refreshed`` how many samples a training takes where they have changed; they count after ``take_refreshed``.
    One that also has ``train_on(model, round_, samples)`` can be a device whose samples vary from round to round. One that also
    has ``trial()`` is tried out before the device joins: it answers what trains so many samples, and leaves no trace.
    """

    def prepare(self, config: Config) -> int: ...

    def train(self, model: bytes, round_: int) -> Update: ...

    def stop(self) -> None: ...


def prepared(trainer: Trainer, config: Config) -> int:
    """D_n: how many samples one training takes."""
    answer: Any = trainer.prepare(config)
    try:
        samples = operator.index(answer)
    except TypeError:
        samples = 0
    if samples < 1:
        raise FedtwinError(
            f"The trainer {type(trainer).__name__} answers {answer!r} in prepare(config): it must be how many samples one "
            "training takes, a whole number from 1."
        )
    return samples


def train_on(trainer: Trainer, model: bytes, round_: int, samples: int, usual: int) -> Update:
    """On D_n(t) samples; ``usual`` is what the trainer has prepared for."""
    if samples == usual:
        return trainer.train(model, round_)
    trained: Update = getattr(trainer, "train_on")(model, round_, samples)  # noqa: B009
    return trained


def require_sensing(trainer: Trainer, own: Own | None) -> None:
    """A device whose samples vary has to train on as many as it says."""
    if own is not None and own.samples_spread and not hasattr(trainer, "train_on"):
        raise FedtwinError(
            f"The trainer {type(trainer).__name__} has no train_on(model, round_, samples): it cannot be a device whose "
            "samples vary (fleet.samples_spread)."
        )


class NoTrainer:
    """Gives the model back as it came: for measuring everything else."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return self._samples

    def train(self, model: bytes, round_: int) -> Update:  # noqa: ARG002
        return Update(model, None)

    def train_on(self, model: bytes, round_: int, samples: int) -> Update:  # noqa: ARG002
        return Update(model, None)

    def stop(self) -> None:
        pass


class CommandTrainer:
    """A user's own training. It reads FEDTWIN_MODEL, writes FEDTWIN_UPDATE (safetensors) and, if it likes, FEDTWIN_REPORT.

    With the file of a model, ``trial``, it can be tried out.
    """

    def __init__(self, command: str, samples: int, limit_s: float = COMMAND_LIMIT_S, trial: Path | None = None) -> None:
        if trial is not None:
            self.trial = lambda: lambda samples: self.train_on(_bytes_of(trial), 0, samples)
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise FedtwinError(f"--command {command!r} cannot be split into words: {error}.") from None
        if not self._command:
            raise FedtwinError("--command is empty: name a program and its arguments.")
        self._samples, self._limit_s = samples, limit_s
        self._settings = ""
        self._config = Config(learning=LearningConfig())
        self._process: Process | None = None

    @property
    def program(self) -> str:
        return self._command[0]

    def prepare(self, config: Config) -> int:
        learning = config.learning or LearningConfig()
        self._config, self._settings = config.model_copy(update={"learning": learning}), learning.model_dump_json()
        return self._samples

    def train(self, model: bytes, round_: int) -> Update:
        return self.train_on(model, round_, self._samples)

    def train_on(self, model: bytes, round_: int, samples: int) -> Update:
        with tempfile.TemporaryDirectory(prefix="fedtwin-", ignore_cleanup_errors=True) as folder:
            names = ("model.safetensors", "update.safetensors", "report.json", "said.txt")
            start, update, report, said = (Path(folder, name) for name in names)
            start.write_bytes(model)
            environment = {
                **os.environ,
                "FEDTWIN_MODEL": str(start),
                "FEDTWIN_UPDATE": str(update),
                "FEDTWIN_REPORT": str(report),
                "FEDTWIN_ROUND": str(round_),
                "FEDTWIN_SAMPLES": str(samples),
                "FEDTWIN_RATE": repr(rate_of(self._config, round_)),
                "FEDTWIN_LEARNING": self._settings,
            }
            try:
                with said.open("wb") as errors:
                    process = launch(self._command, output=subprocess.DEVNULL, errors=errors, environment=environment)
            except OSError as error:
                raise TrainingError(f"{self.program} cannot be run: {error.strerror}") from None
            self._process = process
            code = exit_code(process, self._limit_s, STOP_S)
            if code is None:
                raise TrainingError(f"{self.program} took longer than {self._limit_s:g} s")
            if code:
                last = (_tail(said).strip().splitlines() or ["no message"])[-1]
                raise TrainingError(f"{self.program} ended with {code}: {last}"[:300])
            try:
                body = update.read_bytes()
            except OSError:
                raise TrainingError(f"{self.program} wrote no FEDTWIN_UPDATE") from None
            return Update(body, _loss_in(report))

    def stop(self) -> None:
        """Ends the training that goes on, with all that it has started."""
        if self._process is not None and self._process.poll() is None:
            stop_group(self._process, STOP_S)


def _bytes_of(model: Path) -> bytes:
    try:
        return plain_file(model).read_bytes()
    except OSError as error:
        raise FedtwinError(f"--model {str(model)!r} cannot be read: {error.strerror}.") from None


def _tail(said: Path) -> str:
    with said.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - MOST_LAST_WORDS_BYTES, 0))
        return file.read().decode(errors="replace")


def _loss_in(report: Path) -> float | None:
    try:
        loss = json.loads(report.read_text(encoding="utf-8"))["train_loss"]
        return float(loss)
    except (OSError, ValueError, KeyError, TypeError):
        return None
