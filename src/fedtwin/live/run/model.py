"""The global model of a live run: mixed in memory, on disk before anybody is told."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.files import DRAFTS, write_whole
from fedtwin.learning.aggregate import make_aggregator, newest_counters
from fedtwin.learning.layout import Weights
from fedtwin.live.wire.tensors import Codec, UnfitError, load_tensors, read_model


class LiveModel:
    """One file per version that is still needed; the newest is ``weights`` and, as bytes, ``encoded``."""

    def __init__(self, folder: Path, config: Config, *, version: int, fsync: bool) -> None:
        self._folder, self._fsync = folder, fsync
        learning = config.learning or LearningConfig()
        self._aggregator = make_aggregator(learning, "async")
        self.needs_start = learning.aggregation == "fedbuff"
        path = self._path(version)
        try:
            self.encoded = path.read_bytes()
        except OSError as error:
            raise FedtwinError(f"The model {str(path)!r} cannot be read: {error.strerror}.") from None
        layout, self.weights = read_model(self.encoded, str(path))
        self.codec = Codec(layout)
        self._restore(version)

    def start_of(self, version: int) -> Weights | None:
        """The model of an earlier version, where the aggregation needs it and it is still there."""
        if not self.needs_start:
            return self.weights
        try:
            return self.codec.decode(self._path(version).read_bytes())
        except (OSError, UnfitError):
            return None

    def mixed(self, start: Weights, upload: Weights, staleness: int, samples: float) -> tuple[Weights, bool]:
        """The next model, and whether it differs from this one. Nothing has happened yet but in a buffer."""
        floats = self._aggregator.add(self.weights.floats, start.floats, upload.floats, staleness, samples)
        changed = floats is not self.weights.floats
        return Weights(floats, newest_counters(self.weights.counters, upload.counters)), changed

    def save(self, version: int, weights: Weights, *, changed: bool) -> None:
        """The new version is on disk, whole, before its event is in the ledger."""
        self.weights = weights
        if changed or weights.counters.size:
            self.encoded = self.codec.encode(weights)
        state = self._aggregator.state()
        try:
            write_whole(self._path(version), self.encoded, fsync=self._fsync)
            if state:
                from safetensors.numpy import save

                write_whole(self._buffer_path(version), save(state), fsync=self._fsync)
        except OSError as error:
            raise FedtwinError(f"The model cannot be written to {str(self._folder)!r}: {error.strerror}.") from None

    def keep_only(self, versions: Iterable[int]) -> None:
        """Removes the files of all other versions, and what a killed process left half-written."""
        for draft in self._folder.glob(DRAFTS):
            draft.unlink(missing_ok=True)
        wanted = {path.name for version in versions for path in (self._path(version), self._buffer_path(version))}
        for path in self._folder.glob("*.safetensors"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def forget(self, version: int) -> None:
        self._path(version).unlink(missing_ok=True)
        if self.needs_start:
            self._buffer_path(version).unlink(missing_ok=True)

    def _restore(self, version: int) -> None:
        try:
            data = self._buffer_path(version).read_bytes()
        except FileNotFoundError:
            return
        state = load_tensors(data)
        self._aggregator.restore({name: np.array(value) for name, value in state.items()})

    def _path(self, version: int) -> Path:
        return model_path(self._folder, version)

    def _buffer_path(self, version: int) -> Path:
        return self._folder / f"buffer-{version:012d}.safetensors"


def model_path(folder: Path, version: int) -> Path:
    return folder / f"model-{version:012d}.safetensors"
