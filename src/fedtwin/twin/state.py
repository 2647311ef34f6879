"""The digital twin DT = {H, S, M}: what the edge server knows of every device, and only that (Section III-A).

H, the links: ``gain`` of every device. S, the key states: samples, CPU, compute time, status, counts, costs, queue.
M, the model: the version the server holds and the one each device holds. Every fact says when it was learned and whence.
"""

import math
from typing import Literal, NamedTuple

Source = Literal["measured", "estimated", "configured"]
Status = Literal["idle", "in-flight", "offline", "quarantined"]


class Fact(NamedTuple):
    """A number the server was told or worked out."""

    value: float
    learned_s: float
    source: Source


class DeviceTwin(NamedTuple):
    """One device as the server sees it. ``queue`` is the virtual queue Q_n at ``queue_round``; it grows from there.

    ``cost_sum``, ``time_sum_s`` and ``energy_sum_j`` are of the ``observations``; ``gain_sum`` is of all ``gains`` heard, and
    ``cpu_hz_sum`` of all CPU frequencies (``cpus``).
    """

    samples: Fact
    status: Status = "idle"
    gain: Fact | None = None
    cpu_hz: Fact | None = None
    compute_s: Fact | None = None
    selections: int = 0
    declines: int = 0
    observations: int = 0
    cost_sum: float = 0.0
    queue: float = 0.0
    queue_round: int = 1
    model_version: int | None = None
    counted: bool = True
    time_sum_s: float = 0.0
    energy_sum_j: float = 0.0
    gain_sum: float = 0.0
    gains: int = 0
    cpu_hz_sum: float = 0.0
    cpus: int = 0
    train_loss: Fact | None = None

    @property
    def mean_cost(self) -> float:
        """s̄_n, the sample mean of the cost, 0 while nothing was observed: Section IV-C."""
        return mean_cost(self.cost_sum, self.observations)


class Twin(NamedTuple):
    """The whole fleet. The two sums make the total queue a matter of one multiplication."""

    devices: tuple[DeviceTwin, ...]
    min_mean_samples: float
    model_version: int = 0
    queue_sum: float = 0.0
    queue_round_sum: int = 0


def new_twin(samples: list[int], min_mean_samples: float) -> Twin:
    """The twin of a fleet nobody has asked yet: the devices announced their samples, Q_n(1) = 0."""
    devices = tuple(DeviceTwin(Fact(float(number), 0.0, "configured")) for number in samples)
    return Twin(devices, min_mean_samples, queue_round_sum=len(devices))


def queue_at(queue: float, queue_round: int, round_: int, min_mean_samples: float) -> float:
    """Q_n(t) = Q_n(t₀) + (t − t₀) D_min since its last selection: the virtual queue, Section IV-A, by one addition."""
    return queue + (round_ - queue_round) * min_mean_samples


def queue_after_selection(queue: float, samples: float, min_mean_samples: float) -> float:
    """Q_n(t + 1) = max{Q_n(t) + D_min − D_n, 0} of the device that is chosen: the virtual queue, Section IV-A."""
    return max(queue + min_mean_samples - samples, 0.0)


def mean_cost(cost_sum: float, observations: int) -> float:
    """s̄_n, the sample mean of the cost, 0 while nothing was observed: Section IV-C."""
    return cost_sum / observations if observations else 0.0


def mean_heard(sum_: float, count: int) -> float:
    """The mean of what was heard of a link or a CPU, NaN while nothing was."""
    return sum_ / count if count else math.nan


def sum_of_queues(queue_sum: float, queue_round_sum: int, devices: int, round_: int, min_mean_samples: float) -> float:
    """Σ_n Q_n(t) from the sums of Q_n(t₀) and of t₀, without a walk over the fleet."""
    return queue_sum + (devices * round_ - queue_round_sum) * min_mean_samples


def total_queue(twin: Twin, round_: int) -> float:
    """Σ_n Q_n(t)."""
    return sum_of_queues(twin.queue_sum, twin.queue_round_sum, len(twin.devices), round_, twin.min_mean_samples)
