"""Local training with PyTorch on a device's own samples, which may change while it runs."""

import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.live.device.trainers import TrainingError, Update
from fedtwin.live.logs import say
from fedtwin.live.wire.protocol import MOST_CHANNELS, Channels, Moments
from fedtwin.live.wire.settings import digests_of, with_code_in
from fedtwin.usercode import source_digest

if TYPE_CHECKING:
    from fedtwin.learning.data import Dataset
    from fedtwin.learning.local import LocalTrainer
    from fedtwin.learning.partition import Indices
    from fedtwin.live.wire.tensors import Codec


class TorchTrainer:
    """The same local training as the simulator's, on this device's own samples (PyTorch is loaded when a run is prepared).

    ``data`` is a file with all that the device owns (docs/data.md), or the name of a data set; as device K of the run's fleet
    it owns the K-th share of that, dealt as in the simulator.
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
        self.moments: Moments | None = None
        self._normalisation: dict[str, list[float]] | None = None
        self._stamp: tuple[int, int] | None = None
        self._fresh: tuple[Dataset, int] | None = None

    def prepare(self, config: Config) -> int:
        from fedtwin.learning.shares import shares_of
        from fedtwin.live.device.emulation import samples_of
        from fedtwin.live.wire.tensors import Codec

        try:
            import torch

            from fedtwin.learning.executors import make_workload
        except ImportError:
            raise FedtwinError("Training here needs PyTorch: pip install 'fedtwin[learn]', or give --command.") from None
        torch.set_num_threads(1)
        learning = config.learning or LearningConfig()
        config = config.model_copy(update={"learning": learning})
        if config.code.folder is None:
            config = with_code_in(self._code, config)
        self._config, self._learning = config, learning
        self._stamp = self._stamp_now()
        data = self._dataset()
        self._share = shares_of(config, data)[self._fleet_device] if self._fleet_device is not None else _all_of(data)
        self._workload = make_workload(config, data.shape, data.outputs)
        self._codec = Codec(self._workload.initial()[0])
        samples = self._given_samples
        if self._fleet_device is not None and samples is None:
            samples = samples_of(config, self._fleet_device)
        self._most = samples or config.fleet.samples_max
        self._samples = min(self._most, len(self._share))
        if self._data is not None and self._samples < len(self._share):
            what = f"a training takes so many of its samples, drawn anew ({'--samples' if samples else 'fleet.samples_max'})"
            say(logging.INFO, what, samples=self._samples, of=len(self._share))
        self._workload.check([self._samples])
        self._trainer, self._normalisation, self._dataset_now = None, None, data
        self.moments = self._moments()
        if self.moments is None:
            self._make_trainer()
        return self._samples

    def _dataset(self) -> "Dataset":
        from fedtwin.learning.data import load_dataset

        return load_dataset(self._data or self._learning.dataset, self._learning, ("train",))

    def _make_trainer(self) -> None:
        self._trainer = self._new_trainer()

    def _new_trainer(self) -> "LocalTrainer":
        from fedtwin.learning.local import Images, LocalTrainer

        images = Images(self._dataset_now.normalised(self._normalisation))
        return LocalTrainer(self._workload.network(), images, self._learning, self._config.code.folder)

    def trial(self) -> Callable[[int], Update]:
        """Trains so many samples from the model everybody starts from; before the run's normalisation is known by its own."""
        from fedtwin.learning.lessons import lesson_of

        if self._codec is None:
            raise TrainingError("not prepared")
        codec, trainer, start = self._codec, self._new_trainer(), self._workload.initial()[1]

        def train(samples: int) -> Update:
            trained = trainer.train(start, lesson_of(self._config, self._share, self._number, 0, samples))
            return Update(codec.encode(trained.weights), trained.train_loss)

        return train

    def _moments(self) -> Moments | None:
        """Of the device's own samples; None where it holds the run's data set, or the settings say what to normalise by."""
        if self._data is None or self._fleet_device is not None or self._learning.normalisation:
            return None
        if self._dataset_now.shape[0] > MOST_CHANNELS:
            raise FedtwinError(
                f"--data {self._data!r} has {self._dataset_now.shape[0]} features, and at most {MOST_CHANNELS} are gathered: "
                "give the run a learning.normalisation."
            )
        targets = self._dataset_now.target_moments()
        found = None if targets is None else Channels(**vars(targets))
        features = [name[:100] for name in self._dataset_now.features or ()] or None
        return Moments(samples=Channels(**vars(self._dataset_now.moments())), targets=found, features=features)

    def normalise(self, normalisation: dict[str, list[float]]) -> None:
        """From here on by the run's."""
        if normalisation != self._normalisation:
            self._normalisation = normalisation
            self._make_trainer()

    def refreshed(self) -> int | None:
        """How many samples a training takes of a file that has changed; None where it has not. One that cannot be used is an
        error once, and what was there before stays.
        """
        stamp = self._stamp_now()
        if stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        data = self._dataset()
        if (data.shape, data.outputs) != (self._dataset_now.shape, self._dataset_now.outputs):
            raise FedtwinError(
                f"--data {self._data!r} has samples of shape {data.shape} now, and {self._dataset_now.shape} before."
            )
        self._fresh = data, min(self._most, len(data.y_train))
        return self._fresh[1]

    def take_refreshed(self) -> None:
        """Trainings are on the changed samples from here on."""
        if self._fresh is not None:
            (self._dataset_now, self._samples), self._fresh = self._fresh, None
            self._share = _all_of(self._dataset_now)
            if self._trainer is not None:
                self._make_trainer()

    def _stamp_now(self) -> tuple[int, int] | None:
        """Of a file of the device's own, or a folder: when it was last written, and its size."""
        if self._data is None or self._fleet_device is not None:
            return None
        try:
            found = Path(self._data).stat()
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size

    def lacks_code(self, config: Config) -> bool:
        """Whether the run trains by code of its own whose source is not here, or another."""
        own = config.own_code
        return any(source_digest(own[setting], self._code) != digest for setting, digest in digests_of(config.code).items())

    @property
    def tensors(self) -> dict[str, tuple[int, ...]] | None:
        """The network that the device's samples and targets make of ``learning.model``."""
        return None if self._codec is None else {entry.name: entry.shape for entry in self._codec.layout.entries}

    def train(self, model: bytes, round_: int) -> Update:
        return self.train_on(model, round_, self._samples)

    def train_on(self, model: bytes, round_: int, samples: int) -> Update:
        from fedtwin.learning.lessons import lesson_of
        from fedtwin.live.wire.tensors import UnfitError

        if self._codec is None:
            raise TrainingError("not prepared")
        if self._trainer is None:
            raise TrainingError("the run's normalisation is not known")
        try:
            start = self._codec.decode_own(model)
        except UnfitError as error:
            raise TrainingError(f"the model does not fit learning.model: {error}") from None
        lesson = lesson_of(self._config, self._share, self._number, round_, samples)
        trained = self._trainer.train(start, lesson)
        return Update(self._codec.encode(trained.weights), trained.train_loss)

    def stop(self) -> None:
        """It goes on to its end; a training of a device is short."""


def _all_of(data: "Dataset") -> "Indices":
    import numpy as np

    return np.arange(len(data.y_train), dtype=np.int64)
