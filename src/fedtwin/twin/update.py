"""How the twin changes when a device answers or reports. Pure: a new twin comes out, the old one stays as it was."""

from typing import NamedTuple

from fedtwin.twin.state import DeviceTwin, Fact, Status, Twin, queue_after_selection, queue_at


class Offer(NamedTuple):
    """What a device answers when it accepts a round: its link, its CPU, what the update will take, and its samples D_n(t).

    Without samples, they are as announced before.
    """

    gain: float
    cpu_hz: float
    compute_s: float
    cost: float
    time_s: float
    energy_j: float
    samples: float | None = None


def accepted(twin: Twin, device: int, round_: int, offer: Offer, at_s: float, *, counted: bool) -> Twin:
    """The device is in flight with the newest model; a counted selection drains its virtual queue (Section IV-A).

    Samples that are others than those it announced last are news; a decline tells nothing of them.
    """
    old = twin.devices[device]
    samples = old.samples
    if offer.samples is not None and offer.samples != samples.value:
        samples = Fact(float(offer.samples), at_s, "measured")
    new = _told(old, offer.gain, offer.cpu_hz, at_s)._replace(
        samples=samples,
        status="in-flight",
        compute_s=Fact(offer.compute_s, at_s, "estimated"),
        model_version=twin.model_version,
        counted=counted,
    )
    if not counted:
        return _with(twin, device, new)
    now = queue_at(old.queue, old.queue_round, round_, twin.min_mean_samples)
    queue = queue_after_selection(now, samples.value, twin.min_mean_samples)
    new = new._replace(selections=old.selections + 1, queue=queue, queue_round=round_ + 1)
    return _with(twin, device, new)._replace(
        queue_sum=twin.queue_sum + (queue - old.queue),
        queue_round_sum=twin.queue_round_sum + (new.queue_round - old.queue_round),
    )


def joined(twin: Twin, samples: int, round_: int, at_s: float) -> Twin:
    """A device more, from the given round on: its virtual queue begins there."""
    new = DeviceTwin(Fact(float(samples), at_s, "configured"), queue_round=round_)
    return twin._replace(devices=(*twin.devices, new), queue_round_sum=twin.queue_round_sum + round_)


def resized(twin: Twin, device: int, samples: int, at_s: float) -> Twin:
    """A device announces another number of samples."""
    return _with(twin, device, twin.devices[device]._replace(samples=Fact(float(samples), at_s, "configured")))


def declined(twin: Twin, device: int, gain: float | None, cpu_hz: float | None, at_s: float) -> Twin:
    """No power meets C5 and C6: nothing is spent or learned of the cost, and the queue grows on."""
    old = twin.devices[device]
    return _with(twin, device, _told(old, gain, cpu_hz, at_s)._replace(declines=old.declines + 1))


def told(twin: Twin, device: int, gain: float | None, cpu_hz: float | None, at_s: float) -> Twin:
    """Telemetry: the device says how its link and its CPU are, as far as it knows."""
    return _with(twin, device, _told(twin.devices[device], gain, cpu_hz, at_s))


def observed(twin: Twin, device: int, cost: float, time_s: float, energy_j: float) -> Twin:
    """The cost of one counted update is known: Γ_n and the sample mean s̄_n of Section IV-C."""
    old = twin.devices[device]
    new = old._replace(
        observations=old.observations + 1,
        cost_sum=old.cost_sum + cost,
        time_sum_s=old.time_sum_s + time_s,
        energy_sum_j=old.energy_sum_j + energy_j,
    )
    return _with(twin, device, new)


def recharged(twin: Twin, device: int, cost_sum: float) -> Twin:
    """The costs that were learned are expressed anew, by other weights or limits, from the same times and energies."""
    return _with(twin, device, twin.devices[device]._replace(cost_sum=cost_sum))


def grown_otherwise(twin: Twin, round_: int, min_mean_samples: float) -> Twin:
    """From a round on the queues grow by another D_min; what they were until then stays."""
    devices = tuple(
        old
        if old.queue_round >= round_
        else old._replace(queue=queue_at(old.queue, old.queue_round, round_, twin.min_mean_samples), queue_round=round_)
        for old in twin.devices
    )
    return twin._replace(
        devices=devices,
        min_mean_samples=min_mean_samples,
        queue_sum=sum(device.queue for device in devices),
        queue_round_sum=sum(device.queue_round for device in devices),
    )


def uploaded(twin: Twin, device: int, compute_s: float, at_s: float, train_loss: float | None) -> Twin:
    """An upload was mixed into the model: the device is idle again, and how long it computed is now measured."""
    old = twin.devices[device]
    new = old._replace(
        status="idle",
        compute_s=Fact(compute_s, at_s, "measured"),
        train_loss=old.train_loss if train_loss is None else Fact(train_loss, at_s, "measured"),
    )
    return _with(twin, device, new)._replace(model_version=twin.model_version + 1)


def uploaded_late(twin: Twin) -> Twin:
    """An upload was mixed in whose task had been given up: the model is newer, of the device nothing more is learned."""
    return twin._replace(model_version=twin.model_version + 1)


def with_status(twin: Twin, device: int, status: Status) -> Twin:
    """The device was heard of again, or is not heard of any more."""
    return _with(twin, device, twin.devices[device]._replace(status=status))


def _told(old: DeviceTwin, gain: float | None, cpu_hz: float | None, at_s: float) -> DeviceTwin:
    """What the device does not say stays as it was known."""
    return old._replace(
        gain=old.gain if gain is None else Fact(gain, at_s, "measured"),
        gain_sum=old.gain_sum if gain is None else old.gain_sum + gain,
        gains=old.gains if gain is None else old.gains + 1,
        cpu_hz=old.cpu_hz if cpu_hz is None else Fact(cpu_hz, at_s, "measured"),
        cpu_hz_sum=old.cpu_hz_sum if cpu_hz is None else old.cpu_hz_sum + cpu_hz,
        cpus=old.cpus if cpu_hz is None else old.cpus + 1,
    )


def _with(twin: Twin, device: int, new: DeviceTwin) -> Twin:
    devices = twin.devices
    return twin._replace(devices=(*devices[:device], new, *devices[device + 1 :]))
