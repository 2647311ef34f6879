"""Images and labels in memory, and where they come from."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.learning.data.catalog import CATALOG, cached_folder

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
EMBEDDED = "digits"
IMAGE_TYPES = (np.uint8, np.float16, np.float32, np.float64)
ALWAYS_ALLOWED_CLASSES = 1000
MOST_DEVIATIONS = 1e9
LOOKED_AT_PIXELS = 100_000


@dataclass(frozen=True)
class Dataset:
    """Images as uint8 or float32 of shape (count, height, width, channels), labels from 0."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]

    @property
    def classes(self) -> int:
        return int(max(self.y_train.max(), self.y_test.max())) + 1

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width), as a network takes it."""
        height, width, channels = self.x_train.shape[1:]
        return channels, height, width

    def normalisation(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and standard deviation of every channel over the training images."""
        pixels = self.x_train.reshape(-1, self.x_train.shape[-1])
        step = max(1, len(pixels) // 5_000_000)
        part = pixels[::step].astype(np.float64)
        return part.mean(0).astype(np.float32), np.maximum(part.std(0), 1e-6).astype(np.float32)


def load_dataset(name: str) -> Dataset:
    """A data set by name, or a user's own ``.npz``. Nothing is ever fetched here."""
    if name == EMBEDDED:
        with files("fedtwin.learning.data").joinpath("digits.npz").open("rb") as file:
            return _from_npz(name, cast(BinaryIO, file))
    if name in CATALOG:
        folder = cached_folder(name)
        if not (folder / "complete").exists():
            raise FedtwinError(f"learning.dataset = {name!r} is not on this machine: run `fedtwin data fetch {name}`.")
        try:
            return Dataset(*(np.load(folder / f"{array}.npy", mmap_mode="r") for array in ARRAYS))
        except (OSError, ValueError, EOFError) as error:
            raise FedtwinError(
                f"learning.dataset = {name!r} in {str(folder)!r} is damaged ({type(error).__name__}): remove that folder, "
                f"then run `fedtwin data fetch {name}`."
            ) from None
    path = Path(name)
    if "\0" in name:
        raise FedtwinError(f"learning.dataset = {name!r} cannot be read: a name holds no NUL.")
    if path.suffix != ".npz":
        known = ", ".join([EMBEDDED, *CATALOG])
        raise FedtwinError(f"learning.dataset = {name!r} is unknown: choose one of {known}, or a .npz file of your own.")
    try:
        with plain_file(path).open("rb") as file:
            return _checked(name, _from_npz(name, file))
    except OSError as error:
        raise FedtwinError(f"learning.dataset = {name!r} cannot be read: {error.strerror or error}.") from None


def _from_npz(name: str, file: BinaryIO) -> Dataset:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            missing = [array for array in ARRAYS if array not in arrays]
            if missing:
                raise FedtwinError(f"learning.dataset = {name!r} has no array {', '.join(missing)}.")
            found = [arrays[array] for array in ARRAYS]
            foreign = [array for array, value in zip(ARRAYS, found, strict=True) if not isinstance(value, np.ndarray)]
            if foreign:
                raise ValueError(f"{', '.join(foreign)} cannot be read as an array")
            return Dataset(*found)
    except (FedtwinError, OSError):
        raise
    except Exception as error:  # every part of a ZIP file has its own: zlib's, LZMA's, a shape that no memory holds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FedtwinError(f"learning.dataset = {name!r} is not a .npz of plain arrays: {reason.rstrip('.')}.") from None


def _checked(name: str, data: Dataset) -> Dataset:
    """A user's arrays: images get a channel axis if they lack one; everything else must fit."""
    x_train, x_test = (_native(x[..., None] if x.ndim == 3 else x) for x in (data.x_train, data.x_test))
    data = Dataset(x_train, np.asarray(data.y_train), x_test, np.asarray(data.y_test))
    for part, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        if x.ndim != 4 or y.ndim != 1 or len(x) != len(y) or x.size == 0:
            raise FedtwinError(
                f"learning.dataset = {name!r}: x_{part} {x.shape} and y_{part} {y.shape} are not images "
                "(count, height, width[, channels]) with one label each."
            )
        if not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
            raise FedtwinError(f"learning.dataset = {name!r}: y_{part} must hold whole numbers from 0.")
        if x.dtype not in IMAGE_TYPES:
            raise FedtwinError(f"learning.dataset = {name!r}: x_{part} is {x.dtype}, not uint8, float16, float32 or float64.")
    if data.x_train.shape[1:] != data.x_test.shape[1:]:
        raise FedtwinError(
            f"learning.dataset = {name!r}: training images {data.x_train.shape[1:]} and "
            f"test images {data.x_test.shape[1:]} differ in shape."
        )
    _require_classes(name, data)
    _require_finite(name, data)
    _require_variation(name, data)
    return data


def _native(x: NDArray[Any]) -> NDArray[Any]:
    """The byte order of this machine, whatever the file has."""
    return np.asarray(x, x.dtype.newbyteorder("="))


def _require_classes(name: str, data: Dataset) -> None:
    """A stray label would be a network with millions of outputs."""
    images = len(data.y_train) + len(data.y_test)
    most = max(images, ALWAYS_ALLOWED_CLASSES)
    if data.classes > most:
        part = "train" if data.y_train.max() >= data.y_test.max() else "test"
        raise FedtwinError(
            f"learning.dataset = {name!r}: y_{part} holds the label {data.classes - 1}, and labels are the numbers of the "
            f"classes, from 0: with {images} images they must be below {most}."
        )


def _require_finite(name: str, data: Dataset) -> None:
    """In float32, in which training computes, and after normalisation."""
    extremes = {part: np.stack([x.min((0, 1, 2)), x.max((0, 1, 2))]).astype(np.float64) for part, x in _images(data)}
    for part, found in extremes.items():
        if not (np.abs(found) <= np.finfo(np.float32).max).all():  # NaN is not
            raise FedtwinError(
                f"learning.dataset = {name!r}: x_{part} holds {_worst(found):g}, and images must be finite numbers in float32."
            )
    mean, deviation = data.normalisation()
    for part, found in extremes.items():
        away = np.abs(found - mean) / deviation.astype(np.float64)
        if not (away <= MOST_DEVIATIONS).all():
            raise FedtwinError(
                f"learning.dataset = {name!r}: x_{part} holds {found.ravel()[away.argmax()]:g}, {away.max():.3g} standard "
                f"deviations from the mean of the training images; at most {MOST_DEVIATIONS:g} are allowed."
            )


def _require_variation(name: str, data: Dataset) -> None:
    """Numbers far from 0 that differ by little are one number in float32."""
    if data.x_train.dtype != np.float64:
        return
    pixels = data.x_train.reshape(-1, data.x_train.shape[-1])
    pixels = pixels[:: max(1, len(pixels) // LOOKED_AT_PIXELS)]
    mean, deviation = data.normalisation()
    normalised = (pixels.astype(np.float32) - mean) / deviation
    for given, left in zip(pixels.T, normalised.T, strict=True):
        if len(np.unique(left)) < min(3, len(np.unique(given))):
            raise FedtwinError(
                f"learning.dataset = {name!r}: x_train holds numbers from {given.min():.12g} to {given.max():.12g}, which in "
                "float32 are all but one number; subtract their mean and scale them first."
            )


def _images(data: Dataset) -> tuple[tuple[str, NDArray[Any]], tuple[str, NDArray[Any]]]:
    return ("train", data.x_train), ("test", data.x_test)


def _worst(values: NDArray[np.float64]) -> float:
    """The first that is not finite, or the one farthest from zero."""
    flat = values.ravel()
    return float(flat[np.argmax(np.where(np.isfinite(flat), np.abs(flat), np.inf))])
