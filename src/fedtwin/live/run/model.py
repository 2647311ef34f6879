"""The global model of a live run: mixed in memory, on disk before anybody is told."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.files import DRAFTS
from fedtwin.learning.aggregation import Upload, aggregation_of
from fedtwin.learning.aggregation.held import Held
from fedtwin.learning.aggregation.refusals import newest_counters
from fedtwin.learning.layout import Weights
from fedtwin.live.run import events
from fedtwin.live.run.ledger import DamageError
from fedtwin.live.run.trail import Kept
from fedtwin.live.wire.ports import Disk
from fedtwin.live.wire.protocol import UPLOAD_SLACK_BYTES
from fedtwin.live.wire.real import DISK
from fedtwin.live.wire.tensors import Codec, UnfitError, read_model
from fedtwin.live.wire.updates import update_codec_of

MODELS = "models"
MOST_UPLOADS_OF_A_SMALL_STATE = 16


class Mixed(NamedTuple):
    """What an upload makes of the model and of the aggregation's state; nothing has happened yet."""

    weights: Weights
    state: Any
    changed: bool


class LiveModel:
    """One file per version that is still needed; the newest is ``weights`` and, as bytes, ``encoded``: devices download it.
    What is evaluated and handed out is ``served``: the same, or, where it ``averages``, the average in the aggregation's state.

    ``kept`` says which files give the aggregation's state back, and the digest of each: what is read is held against it.
    """

    def __init__(self, folder: Path, config: Config, kept: Kept, *, fsync: bool, disk: Disk = DISK) -> None:
        self._folder, self._kept, self._fsync, self._disk = folder, kept, fsync, disk
        self._rule = aggregation_of(config)
        self.needs_start, self._sync = self._rule.needs_start, config.run.mode == "sync"
        self.averages = config.averages
        newest = model_path(folder, kept.version)
        self.encoded = self._read_model(kept.version)
        self.sha256 = digest_of(self.encoded)
        layout, self.weights = read_model(self.encoded, str(newest))
        self.codec = Codec(layout)
        self._updates = update_codec_of(config.learning, layout)
        self.sends_changes = self._updates is not None
        self.keeps_starts = self.needs_start or self.sends_changes
        self._state = self._recovered(newest)

    @property
    def served(self) -> Weights:
        return Weights(self._rule.served(self._state, self.weights.floats), self.weights.counters)

    @property
    def most_upload_bytes(self) -> int:
        """Other programs write longer headers."""
        return self.upload_bytes + UPLOAD_SLACK_BYTES

    @property
    def upload_bytes(self) -> int:
        """What a device of ours sends."""
        return self.codec.size if self._updates is None else self._updates.size

    def uploaded(self, body: bytes | memoryview, start: Weights) -> Weights:
        """The model that a device has sent, which had downloaded ``start``: whole, or as a change; or ``UnfitError``."""
        return self.codec.decode(body) if self._updates is None else self._updates.decode(body, start)

    def start_of(self, version: int) -> Weights | None:
        """The model of an earlier version, where the aggregation or what is sent needs it and it is still there."""
        if not self.keeps_starts:
            return self.weights
        try:
            return self.codec.decode(self._read_model(version))
        except (FedtwinError, UnfitError):
            return None

    def why_no_start(self, version: int) -> str:
        """The reason an upload is refused for."""
        if not model_path(self._folder, version).exists():
            return "stale: the model it started from is gone"
        return f"damaged: version {version} of the model, which it started from, is not what was written here"

    def mixed(self, upload: Upload, counters: np.ndarray) -> Mixed:
        """What becomes of an upload, and of the counters that came with it."""
        return self._mix(self.weights, self._state, upload, counters)

    def save(
        self, version: int, mixed: Mixed, told: Upload, upload: Weights, *, start: int
    ) -> events.KeptUpload | events.KeptState | None:
        """The new version is on disk, whole, before its event is in the ledger, and so is what gives the state back.

        That is the upload, which was trained from version ``start``; or, once in many uploads and when it is no larger than
        half of them, the state itself; or nothing, where it is the state a run begins with. What cannot be written has not
        happened: the model is the one before.
        """
        encoded = self.codec.encode(mixed.weights) if mixed.changed or mixed.weights.counters.size else self.encoded
        kept: events.KeptUpload | events.KeptState | None = None
        held, uploads = self._rule.hold(mixed.state, mixed.weights.floats), len(self._kept.trail.since) + 1
        try:
            if not self._rule.is_initial(held, mixed.weights.floats):
                if uploads > MOST_UPLOADS_OF_A_SMALL_STATE and 2 * held.size_bytes <= uploads * self.codec.size:
                    file, data = f"state-{version:012d}.safetensors", _encoded_state(held)
                    kept = events.KeptState(file=file, sha256=digest_of(data))
                    self._disk.write_whole(self._folder / file, data, fsync=self._fsync)
                else:
                    kept = self.keep(version, told, upload, start=start)
            self._write(version, mixed, encoded)
        except OSError as error:
            raise self._not_written(error) from None
        return kept

    def keep(self, number: int, told: Upload, upload: Weights, *, start: int) -> events.KeptUpload:
        """The upload as it came, on disk."""
        file, data = f"upload-{number:012d}.safetensors", self.codec.encode(upload)
        try:
            self._disk.write_whole(self._folder / file, data, fsync=self._fsync)
        except OSError as error:
            raise self._not_written(error) from None
        numbers = {"staleness": told.staleness, "samples": told.samples, "round": told.round}
        return events.KeptUpload(file=file, sha256=digest_of(data), start=start, **numbers)

    def round_mixed(self, uploads: Iterable[events.Applied]) -> Mixed:
        """What the uploads of a synchronous round make of the model, in their order, when the round is closed."""
        start, weights, state, changes = self.weights, self.weights, self._state, 0
        for event in uploads:
            assert event.upload is not None
            upload, kept = self._read_upload(event.upload), event.upload
            began = start.floats if self.needs_start else None
            told = Upload(began, upload.floats, changes, kept.samples, event.device, kept.round)
            weights, state, changed = self._mix(weights, state, told, upload.counters)
            changes += changed
        state, floats = self._rule.close_round(state, weights.floats)
        return Mixed(Weights(floats, weights.counters), state, floats is not start.floats)

    def save_round(self, round_: int, version: int, mixed: Mixed) -> events.KeptState | None:
        """The model after a synchronous round is on disk, whole, before its event is in the ledger, and so is the state, unless
        it is the one a run begins with.
        """
        held = self._rule.hold(mixed.state, mixed.weights.floats)
        kept = None
        try:
            if not self._rule.is_initial(held, mixed.weights.floats):
                file, data = f"state-{round_:012d}.safetensors", _encoded_state(held)
                kept = events.KeptState(file=file, sha256=digest_of(data))
                self._disk.write_whole(self._folder / file, data, fsync=self._fsync)
            self._write(version, mixed, self.codec.encode(mixed.weights))
        except OSError as error:
            raise self._not_written(error) from None
        return kept

    def use(self, config: Config) -> events.KeptState | None:
        """Uploads are mixed by these settings from now on. The aggregation's state, if it is on disk for that: those that it
        came from were mixed by other settings.
        """
        rule, kept = aggregation_of(config), None
        if not self._sync:
            held = self._rule.hold(self._state, self.weights.floats)
            if self._kept.trail.since or not rule.is_initial(held, self.weights.floats):
                file, data = f"state-{self._kept.version:012d}.safetensors", _encoded_state(held)
                kept = events.KeptState(file=file, sha256=digest_of(data))
                try:
                    self._disk.write_whole(self._folder / file, data, fsync=self._fsync)
                except OSError as error:
                    raise self._not_written(error) from None
        self._rule = rule
        return kept

    def _write(self, version: int, mixed: Mixed, encoded: bytes) -> None:
        """On disk first: until then whoever is sent a task has the model before."""
        self.sha256 = self._disk.write_digested(model_path(self._folder, version), encoded, fsync=self._fsync)
        self.encoded = encoded
        self.weights, self._state = mixed.weights, mixed.state

    def _not_written(self, error: OSError) -> FedtwinError:
        return FedtwinError(f"The model cannot be written to {str(self._folder)!r}: {error.strerror}.")

    def keep_only(self, versions: Iterable[int], files: Iterable[str]) -> None:
        """Removes all other files, also those that a killed process left half-written."""
        wanted = {*files, *(model_path(self._folder, version).name for version in versions)}
        for name in self._disk.names(self._folder):
            if fnmatch(name, DRAFTS) or (name.endswith(".safetensors") and name not in wanted):
                with suppress(OSError):  # it may be no file
                    self._disk.remove(self._folder / name)

    def forget(self, version: int) -> None:
        self._disk.remove(model_path(self._folder, version))

    def _mix(self, weights: Weights, state: Any, upload: Upload, counters: np.ndarray) -> Mixed:
        state, floats = self._rule.apply(state, weights.floats, upload)
        return Mixed(Weights(floats, newest_counters(weights.counters, counters)), state, floats is not weights.floats)

    def _recovered(self, newest: Path) -> Any:
        """The aggregation's state, by doing again what was done since it was last written."""
        trail, weights = self._kept.trail, self.weights
        since = () if self._sync else trail.since
        for event in trail.since if self._sync else ():  # needed when the round is closed: what is damaged is said now
            assert event.upload is not None
            self._read_upload(event.upload)
        if since:
            weights = self._model_of(trail.version)
        state = self._rule.init(weights.floats) if trail.state is None else self._read_state(trail.state, weights)
        for event in since:
            assert event.upload is not None
            upload, kept = self._read_upload(event.upload), event.upload
            start = self._model_of(kept.start).floats if self.needs_start else None
            told = Upload(start, upload.floats, kept.staleness, kept.samples, event.device, kept.round)
            weights, state, _ = self._mix(weights, state, told, upload.counters)
        if self.codec.encode(weights) != self.codec.encode(self.weights):
            raise FedtwinError(
                f"learning.aggregation = {self._rule.name!r} makes another model of the uploads that were kept than "
                f"{str(newest)!r}: it does not give the same for the same, or is not what it was."
            )
        return state

    def _model_of(self, version: int) -> Weights:
        return self._decoded(model_path(self._folder, version).name, self._read_model(version))

    def _read_model(self, version: int) -> bytes:
        return self._read(model_path(self._folder, version).name, "model", self._kept.models.get(version))

    def _read_upload(self, kept: events.KeptUpload) -> Weights:
        return self._decoded(kept.file, self._read(kept.file, "upload", kept.sha256))

    def _read_state(self, kept: events.KeptState, model: Weights) -> Any:
        from safetensors.numpy import load

        data = self._read(kept.file, "state", kept.sha256)
        arrays = load(data)
        form = json.loads(arrays.pop("form").tobytes())
        return self._rule.restore(Held(form, [arrays[str(number)] for number in range(len(arrays))]), model.floats)

    def _decoded(self, name: str, data: bytes) -> Weights:
        try:
            return self.codec.decode(data)
        except UnfitError as error:
            raise FedtwinError(f"{str(self._folder / name)!r} is damaged: {error}.") from None

    def _read(self, name: str, what: str, sha256: str | None) -> bytes:
        path = self._folder / name
        try:
            data = self._disk.read(path)
        except OSError as error:
            needed = "" if what == "model" else f", and the state of learning.aggregation = {self._rule.name!r} needs it"
            raise DamageError(f"The {what} {str(path)!r} cannot be read: {error.strerror}{needed}.") from None
        if digest_of(data) != sha256:
            raise DamageError(f"The {what} {str(path)!r} is damaged: it is not what the ledger says was written.")
        return data


def _encoded_state(held: Held) -> bytes:
    from safetensors.numpy import save

    form = np.frombuffer(json.dumps(held.form).encode(), np.uint8)
    arrays = {str(number): np.asarray(array, order="C") for number, array in enumerate(held.arrays)}
    return save({"form": form, **arrays})


def digest_of(data: bytes) -> str:
    """As the ledger has it."""
    return hashlib.sha256(data).hexdigest()


def model_path(folder: Path, version: int) -> Path:
    return folder / f"model-{version:012d}.safetensors"
