"""The run's normalisation, from what the devices tell of their own samples."""

from collections import Counter
from collections.abc import Iterable, Mapping

from fedtwin.learning.normalisation import Moments, normalisation_of
from fedtwin.live.wire.protocol import Channels
from fedtwin.live.wire.protocol import Moments as Told


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


def _shape(told: Told) -> tuple[int, int]:
    return len(told.samples.mean), len(told.targets.mean) if told.targets is not None else 0


def _moments(told: Channels) -> Moments:
    return Moments(told.count, tuple(told.mean), tuple(told.squares))
