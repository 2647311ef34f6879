"""Arrays of the user's, checked: shapes, types and numbers must be what training takes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.data.dataset import Dataset, SampleKind
from fedtwin.learning.tasks import checked_targets, outputs_of_targets

IMAGE_TYPES = (np.uint8, np.float16, np.float32, np.float64)
MOST_DEVIATIONS = 1e9
LOOKED_AT_PIXELS = 100_000
AXES: dict[SampleKind, str] = {
    "rows": "rows (count, features)",
    "windows": "windows (count, channels, length)",
    "images": "images (count, height, width[, channels])",
}


def checked(setting: str, arrays: dict[str, NDArray[Any]], learning: LearningConfig) -> Dataset:
    """A data set of which a part may be missing: that is empty then."""
    kind = _kind_of(learning, next(arrays[name] for name in ("x_train", "x_test") if name in arrays))
    x: dict[str, NDArray[Any]] = {}
    y: dict[str, NDArray[Any]] = {}
    for part in ("train", "test"):
        if f"x_{part}" in arrays:
            x[part] = _samples(setting, part, arrays[f"x_{part}"], kind, arrays[f"y_{part}"])
            y[part] = checked_targets(setting, learning.task, part, np.asarray(arrays[f"y_{part}"]), len(x[part]))
    there = next(iter(x))
    for part in ("train", "test"):
        x.setdefault(part, x[there][:0])
        y.setdefault(part, y[there][:0])
    if x["train"].shape[1:] != x["test"].shape[1:]:
        raise FedtwinError(
            f"{setting}: training {kind} {x['train'].shape[1:]} and test {kind} {x['test'].shape[1:]} differ in shape."
        )
    if y["train"].shape[1:] != y["test"].shape[1:]:
        raise FedtwinError(f"{setting}: y_train {y['train'].shape} and y_test {y['test'].shape} differ in their targets.")
    outputs_of_targets(learning, setting, [y["train"], y["test"]])
    clients = _clients(setting, arrays.get("client"), len(x["train"]))
    features = tuple(arrays["features"].tolist()) if "features" in arrays else None
    data = Dataset(x["train"], y["train"], x["test"], y["test"], kind, learning.task, clients, learning.outputs, None, features)
    _require_finite(setting, data)
    _require_variation(setting, data)
    if kind == "images":
        return data
    small = (data.x_train.astype(np.float32), data.y_train, data.x_test.astype(np.float32), data.y_test)
    return Dataset(*small, kind, learning.task, clients, learning.outputs, None, features)


def _kind_of(learning: LearningConfig, x: NDArray[Any]) -> SampleKind:
    """As ``learning.input`` says; else by the axes: three are an image without channels, unless a ``tcn`` takes windows."""
    if learning.input != "auto":
        return learning.input
    if x.ndim == 2:
        return "rows"
    return "windows" if x.ndim == 3 and learning.model == "tcn" else "images"


def _samples(setting: str, part: str, x: NDArray[Any], kind: SampleKind, y: NDArray[Any]) -> NDArray[Any]:
    axes = {"rows": 2, "windows": 3, "images": 4}[kind]
    x = x[..., None] if kind == "images" and x.ndim == 3 else x
    if x.ndim != axes or x.size == 0 or y.ndim == 0 or len(x) != len(y):
        raise FedtwinError(
            f"{setting}: x_{part} {x.shape} and y_{part} {y.shape} are not {AXES[kind]} with one label each, or targets."
        )
    x = np.asarray(x, x.dtype.newbyteorder("="))  # the byte order of this machine, whatever the file has
    whole = np.issubdtype(x.dtype, np.integer) or x.dtype == np.bool_
    if x.dtype not in IMAGE_TYPES and not (whole and kind != "images"):
        others = "" if kind == "images" else " or whole numbers"
        raise FedtwinError(f"{setting}: x_{part} is {x.dtype}, not uint8, float16, float32 or float64{others}.")
    return x


def _clients(setting: str, client: NDArray[Any] | None, samples: int) -> NDArray[np.int64] | None:
    """Numbers from 0, in the order of the names or numbers that the data has."""
    if client is None:
        return None
    if client.shape != (samples,) or client.dtype.kind not in "iuUS":
        raise FedtwinError(
            f"{setting}: client {client.shape} of {client.dtype} is not a whole number or name for each of {samples} samples."
        )
    return np.asarray(np.unique(client, return_inverse=True)[1], np.int64)


def _numbers(x: NDArray[Any], kind: SampleKind) -> NDArray[Any]:
    """(numbers, channels)."""
    return x.reshape(-1, x.shape[-1]) if kind != "windows" else np.moveaxis(x, 1, 2).reshape(-1, x.shape[1])


def _require_finite(setting: str, data: Dataset) -> None:
    """In float32, in which training computes, and after normalisation."""
    extremes = {
        part: np.stack([numbers.min(0), numbers.max(0)]).astype(np.float64)
        for part, x in (("train", data.x_train), ("test", data.x_test))
        if len(numbers := _numbers(x, data.kind))
    }
    for part, found in extremes.items():
        if not (np.abs(found) <= np.finfo(np.float32).max).all():  # NaN is not
            raise FedtwinError(
                f"{setting}: x_{part} holds {_worst(found):g}, and {data.kind} must be finite numbers in float32."
            )
    if not len(data.x_train):
        return
    normalisation = data.normalisation()
    mean, deviation = np.array(normalisation.mean), np.array(normalisation.std)
    for part, found in extremes.items():
        away = np.abs(found - mean) / deviation
        if not (away <= MOST_DEVIATIONS).all():
            raise FedtwinError(
                f"{setting}: x_{part} holds {found.ravel()[away.argmax()]:g}, {away.max():.3g} standard "
                f"deviations from the mean of the training {data.kind}; at most {MOST_DEVIATIONS:g} are allowed."
            )


def _require_variation(setting: str, data: Dataset) -> None:
    """Numbers far from 0 that differ by little are one number in float32."""
    if data.x_train.dtype != np.float64 or not len(data.x_train):
        return
    numbers = _numbers(data.x_train, data.kind)
    numbers = numbers[:: max(1, len(numbers) // LOOKED_AT_PIXELS)]
    found = data.normalisation()
    mean, deviation = np.array(found.mean, np.float32), np.array(found.std, np.float32)
    normalised = (numbers.astype(np.float32) - mean) / deviation
    for given, left in zip(numbers.T, normalised.T, strict=True):
        if len(np.unique(left)) < min(3, len(np.unique(given))):
            raise FedtwinError(
                f"{setting}: x_train holds numbers from {given.min():.12g} to {given.max():.12g}, which in "
                "float32 are all but one number; subtract their mean and scale them first."
            )


def _worst(values: NDArray[np.float64]) -> float:
    """The first that is not finite, or the one farthest from zero."""
    flat = values.ravel()
    return float(flat[np.argmax(np.where(np.isfinite(flat), np.abs(flat), np.inf))])
