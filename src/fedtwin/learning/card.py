"""What a model file says of its model: all that it takes to use it elsewhere. NumPy only, so that an edge server writes it too.

It is one JSON object in the metadata of the safetensors file, under ``fedtwin``.
"""

import json
import math
import struct
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedtwin import __version__
from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import Dataset
from fedtwin.learning.tasks import task_of
from fedtwin.usercode import source_digest

FORMAT, KEY = 1, "fedtwin"
Which = Literal["served", "best", "plain"]
FILES: dict[Which, str] = {
    "served": "model.safetensors",
    "best": "model-best.safetensors",
    "plain": "model-plain.safetensors",
}
NOT_TO_USE_IT = ("learning.optimiser",)


class Fit(NamedTuple):
    """The samples a network was made for; None where that is not known here."""

    shape: tuple[int, ...] | None
    outputs: int | None
    input: str | None
    normalisation: dict[str, list[float]] | None
    features: tuple[str, ...] | None = None


def fit_of(data: Dataset) -> Fit:
    return Fit(data.shape, data.outputs, data.kind, data.normalisation().as_json(), data.features)


@dataclass(frozen=True)
class ModelCard:
    """Of one model. ``loss``, ``metric`` and ``model`` are names, or ``module:attribute`` with the digest of its source in
    ``code``. ``outputs`` is the number of classes, targets or labels, ``shape`` that of one sample as the network takes it.

    ``test_loss`` and ``test_metric`` are what the run measured of this very model; None where it measured none. ``version``
    counts the uploads of a live run. ``average`` is "ema" where the model is an average, as ``learning.average`` says.
    """

    which: Which
    task: str
    loss: str
    metric: str
    metric_direction: str
    model: str
    outputs: int | None
    shape: tuple[int, ...] | None
    input: str | None
    normalisation: dict[str, list[float]] | None
    code: dict[str, str]
    config_hash: str
    package_version: str = __version__
    round: int | None = None
    version: int | None = None
    test_loss: float | None = None
    test_metric: float | None = None
    average: str = "none"
    features: tuple[str, ...] | None = None
    format: int = FORMAT

    def of(self, which: Which, **measured: Any) -> "ModelCard":
        """The same of another model of the run. A number that is none is left out."""
        none = {key: None for key, value in measured.items() if isinstance(value, float) and not math.isfinite(value)}
        average = "none" if which == "plain" else self.average
        return replace(self, which=which, average=average, **{**measured, **none})

    @property
    def metadata(self) -> dict[str, str]:
        """One key only: the order of several is not fixed, and the same run gives the same bytes."""
        told = {key: value for key, value in asdict(self).items() if key != "features" or value is not None}
        return {KEY: json.dumps(told, separators=(",", ":"), allow_nan=False)}

    @property
    def learning(self) -> LearningConfig:
        """The settings that it takes to compute with the model."""
        names = {"task": self.task, "loss": self.loss, "metric": self.metric, "metric_direction": self.metric_direction}
        given = {"model": self.model, "outputs": self.outputs or 0, "input": self.input or "auto"}
        return LearningConfig.model_validate({**names, **given})


def card_of(config: Config, fit: Fit, config_hash: str, code_folder: str | Path | None) -> ModelCard:
    """Of the model that is served, without a figure. The source of the user's own code counts as it lies in ``code_folder``."""
    learning = config.learning
    if learning is None:
        raise ValueError("a run without [learning] has no card")
    task, own = task_of(learning), learning.own_code
    return ModelCard(
        which="served",
        task=task.name,
        loss=task.loss,
        metric=task.metric if learning.metric == "auto" else learning.metric,
        metric_direction=task.direction,
        model=learning.model,
        outputs=fit.outputs,
        shape=fit.shape,
        input=fit.input,
        normalisation=fit.normalisation,
        code={key: source_digest(name, code_folder) for key, name in own.items() if key not in NOT_TO_USE_IT},
        config_hash=config_hash,
        average="ema" if config.averages else "none",
        features=fit.features,
    )


def with_card(model: bytes, card: ModelCard) -> bytes:
    """Safetensors bytes with the card in their header; the tensors stay as they are."""
    return _with_metadata(model, {"__metadata__": card.metadata})


def without_card(model: bytes) -> bytes:
    """As they were; what is no safetensors, as it is."""
    try:
        return _with_metadata(model, {})
    except (struct.error, ValueError, AttributeError):
        return model


def _with_metadata(model: bytes, metadata: dict[str, Any]) -> bytes:
    size = struct.unpack("<Q", model[:8])[0]
    entries = {name: entry for name, entry in json.loads(model[8 : 8 + size]).items() if name != "__metadata__"}
    text = json.dumps({**entries, **metadata}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, memoryview(model)[8 + size :]])


def read_card(metadata: dict[str, str] | None, name: str) -> ModelCard:
    """From the metadata of a model file; ``name`` is for the sentence where there is no card, or one of a later fedtwin."""
    if KEY not in (metadata or {}):
        raise FedtwinError(f"The model {name!r} does not say what it is: it has no metadata of fedtwin.")
    try:
        found = json.loads((metadata or {})[KEY])
        if found["format"] != FORMAT:
            raise FedtwinError(f"The model {name!r} has metadata of format {found['format']}, and this fedtwin reads {FORMAT}.")
        known = {field.name for field in fields(ModelCard)}
        shape = None if found["shape"] is None else tuple(map(int, found["shape"]))
        features = None if found.get("features") is None else tuple(map(str, found["features"]))
        given = {key: value for key, value in found.items() if key in known}
        card = ModelCard(**{**given, "shape": shape, "features": features})
        _ = card.learning  # what are no settings is refused here
        return card
    except (ValueError, TypeError, KeyError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise FedtwinError(f"The metadata of the model {name!r} cannot be read: {why.rstrip('.')}.") from None
