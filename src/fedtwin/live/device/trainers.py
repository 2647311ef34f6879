"""What a device does with a model: train it on its own data with PyTorch, hand it to a command, or nothing."""

import json
import os
import shlex
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.live.wire.protocol import Own
from fedtwin.live.wire.settings import with_code_in
from fedtwin.supervision import Process, launch

if TYPE_CHECKING:
    from fedtwin.learning.local import LocalTrainer
    from fedtwin.live.wire.tensors import Codec

COMMAND_LIMIT_S = 3600.0


class Update(NamedTuple):
    """A trained model as safetensors bytes, and its mean training loss."""

    body: bytes
    train_loss: float | None


class TrainingError(Exception):
    """Why a training came to nothing, in a few words."""


class Trainer(Protocol):
    """``prepare`` once for a run, answers the samples of a training; ``train`` as often as asked; ``stop`` cuts it short.

    One that also has ``tensors``, the shapes by name of the network it has prepared, is refused at once where they do not fit.
    One that also has ``train_on(model, round_, samples)`` can be a device whose samples vary from round to round.
    """

    def prepare(self, config: Config) -> int: ...

    def train(self, model: bytes, round_: int) -> Update: ...

    def stop(self) -> None: ...


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
    """A user's own training. It reads FEDTWIN_MODEL, writes FEDTWIN_UPDATE (safetensors) and, if it likes, FEDTWIN_REPORT."""

    def __init__(self, command: str, samples: int, limit_s: float = COMMAND_LIMIT_S) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise FedtwinError(f"--command {command!r} cannot be split into words: {error}.") from None
        if not self._command:
            raise FedtwinError("--command is empty: name a program and its arguments.")
        self._samples, self._limit_s = samples, limit_s
        self._settings = ""
        self._process: Process | None = None

    def prepare(self, config: Config) -> int:
        self._settings = (config.learning or LearningConfig()).model_dump_json()
        return self._samples

    def train(self, model: bytes, round_: int) -> Update:
        return self.train_on(model, round_, self._samples)

    def train_on(self, model: bytes, round_: int, samples: int) -> Update:
        with tempfile.TemporaryDirectory(prefix="fedtwin-") as folder:
            start, update, report = (Path(folder, name) for name in ("model.safetensors", "update.safetensors", "report.json"))
            start.write_bytes(model)
            environment = {
                **os.environ,
                "FEDTWIN_MODEL": str(start),
                "FEDTWIN_UPDATE": str(update),
                "FEDTWIN_REPORT": str(report),
                "FEDTWIN_ROUND": str(round_),
                "FEDTWIN_SAMPLES": str(samples),
                "FEDTWIN_LEARNING": self._settings,
            }
            try:
                process = self._process = launch(
                    self._command, output=subprocess.DEVNULL, errors=subprocess.PIPE, environment=environment
                )
            except OSError as error:
                raise TrainingError(f"{self._command[0]} cannot be run: {error.strerror}") from None
            try:
                _, said = process.communicate(timeout=self._limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise TrainingError(f"{self._command[0]} took longer than {self._limit_s:g} s") from None
            if code := process.returncode:
                last = (said.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
                raise TrainingError(f"{self._command[0]} ended with {code}: {last}"[:300])
            try:
                body = update.read_bytes()
            except OSError:
                raise TrainingError(f"{self._command[0]} wrote no FEDTWIN_UPDATE") from None
            return Update(body, _loss_in(report))

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


def _loss_in(report: Path) -> float | None:
    try:
        loss = json.loads(report.read_text(encoding="utf-8"))["train_loss"]
        return float(loss)
    except (OSError, ValueError, KeyError, TypeError):
        return None


class TorchTrainer:
    """The same local training as the simulator's, on this device's own samples (PyTorch is loaded when a run is prepared).

    ``data`` is a ``.npz`` with all that the device owns, or the name of a data set; as device K of the run's fleet it owns
    the K-th share of that, dealt as in the simulator.
    """

    def __init__(
        self, name: str, data: str | None, samples: int | None, fleet_device: int | None, code: Path | None = None
    ) -> None:
        self._code = code
        self._number = zlib.crc32(name.encode()) if fleet_device is None else fleet_device
        self._data, self._given_samples, self._fleet_device = data, samples, fleet_device
        self._samples = 0
        self._trainer: LocalTrainer | None = None
        self._codec: Codec | None = None

    def prepare(self, config: Config) -> int:
        import numpy as np

        from fedtwin.learning.data import load_dataset
        from fedtwin.learning.partition import deal
        from fedtwin.live.device.emulation import samples_of
        from fedtwin.live.wire.tensors import Codec

        try:
            import torch

            from fedtwin.learning.executors import make_workload
            from fedtwin.learning.local import Images, LocalTrainer
        except ImportError:
            raise FedtwinError("Training here needs PyTorch: pip install 'fedtwin[learn]', or give --command.") from None
        torch.set_num_threads(1)
        learning = config.learning or LearningConfig()
        config = with_code_in(self._code, config.model_copy(update={"learning": learning}))
        data = load_dataset(self._data or learning.dataset)
        self._seed, self._epochs = config.run.seed, learning.local_epochs
        self._share = np.arange(len(data.y_train), dtype=np.int64)
        if self._fleet_device is not None:
            gamma = learning.dirichlet_gamma if learning.partition == "dirichlet" else None
            shares = deal(data.y_train, self._seed, config.fleet.devices, learning.owned_samples, gamma)
            self._share = shares[self._fleet_device]
        workload = make_workload(config, data.image_shape, data.classes)
        self._trainer = LocalTrainer(workload.network(), Images(data), learning)
        self._codec = Codec(workload.initial()[0])
        samples = self._given_samples
        if self._fleet_device is not None and samples is None:
            samples = samples_of(config, self._fleet_device)
        self._samples = min(samples or config.fleet.samples_max, len(self._share))
        workload.check([self._samples])
        return self._samples

    @property
    def tensors(self) -> dict[str, tuple[int, ...]] | None:
        """The network that the device's images and labels make of ``learning.model``."""
        return None if self._codec is None else {entry.name: entry.shape for entry in self._codec.layout.entries}

    def train(self, model: bytes, round_: int) -> Update:
        return self.train_on(model, round_, self._samples)

    def train_on(self, model: bytes, round_: int, samples: int) -> Update:
        from fedtwin.learning.partition import training_order
        from fedtwin.live.wire.tensors import UnfitError

        if self._trainer is None or self._codec is None:
            raise TrainingError("not prepared")
        try:
            start = self._codec.decode_own(model)
        except UnfitError as error:
            raise TrainingError(f"the model does not fit learning.model: {error}") from None
        order = training_order(self._share, self._seed, self._number, round_, samples, self._epochs)
        trained = self._trainer.train(start, order)
        return Update(self._codec.encode(trained.weights), trained.train_loss)

    def stop(self) -> None:
        """It goes on to its end; a training of a device is short."""
