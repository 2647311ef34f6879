"""What a device sends of a model it has trained: all of it, or the change, compressed as the run says."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.learning.layout import Floats, Weights
from fedtwin.live.device.trainers import TrainingError
from fedtwin.live.wire.tensors import Codec, UnfitError, read_model
from fedtwin.live.wire.updates import update_codec_of


class Packed(NamedTuple):
    """The bytes of an upload, and e_n when they have been sent; None where it stays as it is."""

    body: bytes
    left_out: Floats | None = None


class Sending:
    """The uploads of one device in one run. What a compression leaves out is added to the next one, for as long as it runs."""

    def __init__(self, config: Config, identity: str | None = None) -> None:
        self._identity, self._learning = identity, config.learning
        self._left_out: Floats | None = None

    def under(self, config: Config, identity: str | None) -> "Sending":
        """With what was left out so far, where these are settings of the same run, changed while it goes on."""
        found = Sending(config, identity)
        if identity is not None and identity == self._identity:
            found._left_out = self._left_out
        return found

    @property
    def compresses(self) -> bool:
        return self._learning is not None and self._learning.compress != "none"

    def packed(self, model: bytes, trained: bytes) -> Packed:
        """Of the model that was downloaded and the one that was trained, whoever has trained it. Nothing changes yet."""
        if not self.compresses:
            with suppress(FedtwinError):  # what is no model the edge server refuses
                _require_finite(read_model(trained, "trained")[1])
            return Packed(trained)
        try:
            layout, start = read_model(model, "downloaded")
            weights = Codec(layout).decode(trained)
        except (FedtwinError, UnfitError) as error:
            raise TrainingError(f"the update does not fit the model: {error}") from None
        _require_finite(weights)
        updates = update_codec_of(self._learning, layout)
        assert updates is not None
        known = self._left_out if self._left_out is not None and len(self._left_out) == updates.compressor.error_size else None
        sent = updates.compressor.send(start, weights, known)
        useful = sent.left_out is not None and bool(np.isfinite(sent.left_out).all())
        return Packed(updates.encode(sent.parts), sent.left_out if useful else None)

    def sent(self, packed: Packed) -> None:
        """The broker has it."""
        if packed.left_out is not None:
            self._left_out = packed.left_out

    def size_of(self, model: bytes) -> int:
        """The bytes of an upload of a model like this one."""
        if not self.compresses:
            return len(model)
        try:
            updates = update_codec_of(self._learning, read_model(model, "tried out")[0])
        except FedtwinError as error:
            raise TrainingError(f"the update does not fit the model: {error}") from None
        assert updates is not None
        return updates.size


def _require_finite(weights: Weights) -> None:
    """A training that has diverged is no attack, and the edge server would have to take it for one."""
    if not np.isfinite(weights.floats).all():
        raise TrainingError("the trained weights are not all finite: its learning rate may be too large")
