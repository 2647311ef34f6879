"""What the twin knows of a device, property by property: the value, when it was learned, and whence."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fedtwin.service.fleet import mean_cost, staleness
from fedtwin.service.moments import Seen
from fedtwin.twin import DeviceTwin, Fact

Provenance = Literal["measured", "estimated", "modelled", "configured"]


class Known(NamedTuple):
    """A value, the second it is of (None: the twin does not keep it), and where it comes from."""

    value: Any
    time_s: float | None
    provenance: Provenance


class Property(NamedTuple):
    """``series`` names what its history is made of: a column of the records, or a sum of two."""

    feature: str
    name: str
    unit: str | None
    description: str
    known: Callable[[Seen, int], Known]
    kind: Literal["number", "integer", "string"] = "number"
    series: str | None = None

    @property
    def path(self) -> str:
        return f"features/{self.feature}/properties/{self.name}"


def _fact(field: str) -> Callable[[Seen, int], Known]:
    def known(seen: Seen, device: int) -> Known:
        fact: Fact | None = getattr(seen.twin.devices[device], field)
        return Known(None, None, "measured") if fact is None else Known(fact.value, fact.learned_s, fact.source)

    return known


def _count(field: str) -> Callable[[Seen, int], Known]:
    """The server's own count: it is of this moment."""
    return lambda seen, device: Known(getattr(seen.twin.devices[device], field), seen.now_s, "measured")


def _mean(total: str, count: str, provenance: Provenance) -> Callable[[Seen, int], Known]:
    """A mean over what was learned so far; the twin does not keep when it last changed."""

    def known(seen: Seen, device: int) -> Known:
        twin = seen.twin.devices[device]
        times = getattr(twin, count)
        return Known(getattr(twin, total) / times if times else None, None, provenance)

    return known


def _now(value: Callable[[Seen, int], Any], provenance: Provenance) -> Callable[[Seen, int], Known]:
    return lambda seen, device: Known(value(seen, device), seen.now_s, provenance)


def _device(seen: Seen, device: int) -> DeviceTwin:
    return seen.twin.devices[device]


def _staleness(seen: Seen, device: int) -> int | None:
    return staleness(_device(seen, device), seen.twin.model_version)


PROPERTIES = (
    Property("link", "gain", "1", "channel gain as last heard", _fact("gain"), series="gain"),
    Property("link", "mean_gain", "1", "mean of the gains heard", _mean("gain_sum", "gains", "measured"), series="gain"),
    Property("compute", "cpu_hz", "Hz", "CPU frequency as last heard", _fact("cpu_hz"), series="cpu_hz"),
    Property("compute", "mean_cpu_hz", "Hz", "mean of those heard", _mean("cpu_hz_sum", "cpus", "measured"), series="cpu_hz"),
    Property("compute", "compute_s", "s", "how long its last training computed", _fact("compute_s"), series="compute_s"),
    Property(
        "energy",
        "mean_energy_j",
        "J",
        "mean of its updates",
        _mean("energy_sum_j", "observations", "modelled"),
        series="energy_j",
    ),
    Property(
        "energy", "mean_time_s", "s", "mean of its updates", _mean("time_sum_s", "observations", "measured"), series="time_s"
    ),
    Property(
        "energy",
        "mean_cost",
        "1",
        "mean cost of its updates, null while none was learned",
        lambda seen, device: Known(mean_cost(_device(seen, device)), None, "modelled"),
        series="cost",
    ),
    Property(
        "training", "status", None, "idle, in-flight, offline, quarantined or drained", _now(Seen.status, "measured"), "string"
    ),
    Property("training", "samples", "1", "samples of a local training", _fact("samples"), series="samples"),
    Property("training", "queue", "1", "virtual queue, in samples", _now(Seen.queue, "modelled"), series="queue"),
    Property("training", "selections", "1", "rounds it has taken", _count("selections"), "integer"),
    Property("training", "declines", "1", "rounds it has declined", _count("declines"), "integer"),
    Property("training", "observations", "1", "updates whose cost was learned", _count("observations"), "integer"),
    Property("training", "model_version", "1", "version of the model it holds", _count("model_version"), "integer"),
    Property("training", "staleness", "1", "versions since it downloaded one", _now(_staleness, "measured"), "integer"),
    Property("training", "train_loss", "1", "mean loss of its last training", _fact("train_loss"), series="train_loss"),
)
BY_PATH = {one.path: one for one in PROPERTIES}
FEATURES = ("link", "compute", "energy", "training")


def shown(known: Known, now_s: float) -> dict[str, Any]:
    """As it stands in a thing. A mean has no time: the twin keeps it, and not when it last changed."""
    age_s = None if known.time_s is None else max(now_s - known.time_s, 0.0)
    return {"value": known.value, "time_s": known.time_s, "age_s": age_s, "provenance": known.provenance}
