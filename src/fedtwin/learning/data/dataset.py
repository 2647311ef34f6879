"""Samples and targets in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.learning.normalisation import Moments, Normalisation, moments_of

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
SampleKind = Literal["rows", "windows", "images"]


def other_features(here: Sequence[str], there: Sequence[str]) -> tuple[str, str] | None:
    """Which names are in one and not in the other, or None: the order of features is that of their names."""
    if list(here) == list(there):
        return None
    ours, theirs = ([one for one in a if one not in b] or ["in another order"] for a, b in ((here, there), (there, here)))
    return ", ".join(ours), ", ".join(theirs)


@dataclass(frozen=True)
class Dataset:
    """Images as uint8 or float32 of shape (count, height, width, channels), windows as float32 (count, channels, length), rows
    as float32 (count, features).

    Targets are classes from 0, or float32 (count, targets). ``clients`` says whose every training sample is, from 0.
    ``features`` are the names of its features or channels, where they have any. ``given_outputs`` and ``normalised_by`` stand
    in place of what the samples themselves show.
    """

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    kind: SampleKind = "images"
    task: str = "classification"
    clients: NDArray[np.int64] | None = None
    given_outputs: int = 0
    normalised_by: Normalisation | None = None
    features: tuple[str, ...] | None = None

    @property
    def classes(self) -> int:
        return int(max(y.max() for y in (self.y_train, self.y_test) if len(y))) + 1

    @property
    def outputs(self) -> int:
        """Of a network for these samples."""
        if self.task != "classification":
            return int(self.y_train.shape[1])
        return self.given_outputs or self.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample as a network takes it: (channels, height, width), (channels, length) or (features,)."""
        if self.kind != "images":
            return tuple(self.x_train.shape[1:])
        height, width, channels = self.x_train.shape[1:]
        return channels, height, width

    def normalisation(self) -> Normalisation:
        """As given; else mean and deviation of every channel, or feature, over the training samples."""
        if self.normalised_by is not None:
            return self.normalised_by
        if not len(self.x_train):
            raise FedtwinError(
                "The data set has no x_train to normalise by, and the run has no normalisation (learning.normalisation)."
            )
        of_targets = self.target_moments()
        found = self.moments() if self.kind != "images" else None
        mean, std = (found.mean, found.std) if found is not None else self._of_images()
        if of_targets is None:
            return Normalisation(mean, std)
        return Normalisation(mean, std, of_targets.mean, of_targets.std)

    def normalised(self, by: dict[str, list[float]] | None) -> "Dataset":
        """By a normalisation that was gathered elsewhere, unless there is none."""
        if by is None:
            return self
        found = Normalisation.from_json(by)
        if len(found.mean) != self.shape[0] or (self.task == "regression" and len(found.target_mean) != self.outputs):
            raise FedtwinError(
                f"The run normalises {len(found.mean)} channels and {len(found.target_mean)} targets, and samples of shape "
                f"{self.shape} with {self.outputs} targets are here."
            )
        return replace(self, normalised_by=found)

    def moments(self) -> Moments:
        return moments_of(np.moveaxis(self.x_train, -1, 1) if self.kind == "images" else self.x_train)

    def target_moments(self) -> Moments | None:
        """Of a regression; labels are 0 or 1, and classes have none."""
        return moments_of(self.y_train) if self.task == "regression" else None

    def _of_images(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        pixels = self.x_train.reshape(-1, self.x_train.shape[-1])
        step = max(1, len(pixels) // 5_000_000)
        part = pixels[::step].astype(np.float64)
        mean, std = part.mean(0).astype(np.float32), np.maximum(part.std(0), 1e-6).astype(np.float32)
        return tuple(mean.tolist()), tuple(std.tolist())
