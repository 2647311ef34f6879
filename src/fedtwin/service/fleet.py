"""The whole fleet at a moment, one array per field."""

from collections.abc import Sequence
from typing import Any

from fedtwin.service.moments import Seen
from fedtwin.service.telling import numbers
from fedtwin.twin import DeviceTwin, Fact

NOBODY: dict[str, list[Any]] = {
    name: []
    for name in (
        *("name", "status", "queue", "selections", "declines", "mean_cost", "samples", "gain", "gain_age_s", "cpu_hz"),
        *("cpu_age_s", "staleness", "train_loss", "trusted"),
    )
}


def fleet(seen: Seen | None, trusted: Sequence[bool | None]) -> dict[str, Any]:
    """``trusted`` is the mark of every device's predictions. A live run that has not started has nobody."""
    if seen is None:
        nothing = {"revision": 0, "round": 0, "seconds": 0.0, "now_s": 0.0, "live": True, "total_queue": 0.0, "queue_round": 1}
        nothing |= {"model_version": 0, "in_flight": 0, "min_mean_samples": 0.0}
        return {**nothing, **means_of_all(()), "columns": NOBODY}
    known, twin = seen.twin.devices, seen.twin
    marks = [*trusted, *[None] * len(known)][: len(known)]
    return {
        **at_a_glance(seen),
        "columns": {
            "name": seen.names,
            "status": [seen.status(number) for number in range(len(known))],
            "queue": [seen.queue(number) for number in range(len(known))],
            "selections": [device.selections for device in known],
            "declines": [device.declines for device in known],
            "mean_cost": [mean_cost(device) for device in known],
            "samples": [device.samples.value for device in known],
            "gain": _values([device.gain for device in known]),
            "gain_age_s": _ages([device.gain for device in known], seen.now_s),
            "cpu_hz": _values([device.cpu_hz for device in known]),
            "cpu_age_s": _ages([device.cpu_hz for device in known], seen.now_s),
            "staleness": [staleness(device, twin.model_version) for device in known],
            "train_loss": _values([device.train_loss for device in known]),
            "trusted": marks,
        },
    }


def at_a_glance(seen: Seen) -> dict[str, Any]:
    """Of the fleet as a whole. Who is not heard of again has at round t a queue larger by ``min_mean_samples`` a round."""
    moment, twin = seen.moment, seen.twin
    return {
        "revision": moment.revision,
        "round": moment.round,
        "seconds": moment.seconds,
        "now_s": seen.now_s,
        "live": seen.live,
        "total_queue": seen.total_queue(),
        "queue_round": moment.queue_round,
        "min_mean_samples": twin.min_mean_samples,
        **means_of_all(twin.devices),
        "model_version": twin.model_version,
        "in_flight": sum(device.status == "in-flight" for device in twin.devices),
    }


def one(seen: Seen, device: int) -> dict[str, Any]:
    """One device, with the same fields."""
    known, now_s = seen.twin.devices[device], seen.now_s
    return {
        "name": seen.names[device],
        "status": seen.status(device),
        "queue": seen.queue(device),
        "selections": known.selections,
        "declines": known.declines,
        "mean_cost": mean_cost(known),
        "samples": known.samples.value,
        "gain": _values([known.gain])[0],
        "gain_age_s": _ages([known.gain], now_s)[0],
        "cpu_hz": _values([known.cpu_hz])[0],
        "cpu_age_s": _ages([known.cpu_hz], now_s)[0],
        "staleness": staleness(known, seen.twin.model_version),
        "train_loss": _values([known.train_loss])[0],
    }


def mean_cost(device: DeviceTwin) -> float | None:
    """Null while no cost was learned: 0 is what the policy takes for it, not what is known."""
    return device.mean_cost if device.observations else None


def means_of_all(devices: Sequence[DeviceTwin]) -> dict[str, float | None]:
    """Cost, seconds and joules, over all updates whose cost has been learned."""
    observations = sum(device.observations for device in devices)
    sums = {"mean_cost": "cost_sum", "mean_time_s": "time_sum_s", "mean_energy_j": "energy_sum_j"}
    return {
        name: sum(getattr(device, summed) for device in devices) / observations if observations else None
        for name, summed in sums.items()
    }


def staleness(device: DeviceTwin, version: int) -> int | None:
    """Versions of the model since the device downloaded one; null where it never did."""
    return None if device.model_version is None else version - device.model_version


def _values(facts: list[Fact | None]) -> list[Any]:
    return numbers([None if fact is None else fact.value for fact in facts])


def _ages(facts: list[Fact | None], now_s: float) -> list[float | None]:
    return [None if fact is None else now_s - fact.learned_s for fact in facts]
