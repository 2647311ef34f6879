"""The run's normalisation, from what the devices tell of their own samples."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.learning.normalisation import Moments, normalisation_of
from fedtwin.live.wire.protocol import Channels
from fedtwin.live.wire.protocol import Moments as Told

FAR, ALIKE = 1000.0, 1e-6


class Stray(NamedTuple):
    """A device whose numbers in a feature lie so many ``times`` as far out as those of the others; of two devices both."""

    names: tuple[str, ...]
    feature: str
    times: float


def gathered(told: Mapping[str, Told | None]) -> tuple[dict[str, list[float]], list[str]] | None:
    """As plain JSON, and whose samples are in it: of all who have as many channels and targets as most."""
    known = {name: moments for name, moments in told.items() if moments is not None}
    if not known:
        return None
    shape = Counter(map(_shape, known.values())).most_common(1)[0][0]
    names = [name for name, moments in known.items() if _shape(moments) == shape]
    samples = [_moments(known[name].samples) for name in names]
    targets = [_moments(of) for name in names if (of := known[name].targets) is not None]
    return normalisation_of(samples, targets).as_json(), names


def features_of(told: Iterable[Told | None]) -> tuple[str, ...] | None:
    """The names of the features, as most have them who have any."""
    named = Counter(tuple(moments.features) for moments in told if moments is not None and moments.features)
    return named.most_common(1)[0][0] if named else None


def strays(told: Mapping[str, Told]) -> list[Stray]:
    """Who of those that are gathered brings a feature in another unit than most, it seems; each with its worst one.

    All are normalised by it, and what the others have becomes nearly one number. A device is as far out as the root of the mean
    squared distance of its samples from the median of all means.
    """
    if len(told) < 2:
        return []
    names = tuple(told)
    targets = [moments.targets for moments in told.values() if moments.targets is not None]
    kinds = [[moments.samples for moments in told.values()], *([targets] if len(targets) == len(told) else [])]
    times = np.hstack([_times_as_far(kind) for kind in kinds])
    known = features_of(told.values()) or ()
    channels = len(next(iter(told.values())).samples.mean)
    found = []
    for device, place in enumerate(times.argmax(1).tolist()):
        if times[device, place] > FAR:
            feature = f"target {place - channels}" if place >= channels else _named(known, place, channels)
            found.append(Stray(names if len(names) == 2 else (names[device],), feature, float(times[device, place])))
    return found


def _named(known: Sequence[str], place: int, channels: int) -> str:
    return known[place] if len(known) == channels else f"channel {place}"


def _times_as_far(told: Sequence[Channels]) -> NDArray[np.float64]:
    """As most are, by device and channel; 0 where most have nothing but one number, and that is 0."""
    means = np.array([one.mean for one in told])
    deviations = np.sqrt(np.array([one.squares for one in told]) / np.array([[one.count] for one in told]))
    middle = _median(means)
    far = np.hypot(means - middle, deviations)
    usual = _median(far)
    usual = np.where(usual <= ALIKE * np.abs(middle), np.abs(middle), usual)
    times: NDArray[np.float64] = far / np.where(usual > 0.0, usual, np.inf)
    return times


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every column; the lower one of an even number, so that it is of a device."""
    middle: NDArray[np.float64] = np.sort(values, 0)[(len(values) - 1) // 2]
    return middle


def _shape(told: Told) -> tuple[int, int]:
    return len(told.samples.mean), len(told.targets.mean) if told.targets is not None else 0


def _moments(told: Channels) -> Moments:
    return Moments(told.count, tuple(told.mean), tuple(told.squares))
