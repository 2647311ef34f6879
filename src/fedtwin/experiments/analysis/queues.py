"""The longest virtual queue of a run, from its records."""

from fedtwin.sim.result import Result
from fedtwin.twin.state import queue_after_selection, queue_at


def longest_queues(result: Result) -> list[float]:
    """max_n Q_n(t) at every round of the series, before the selection of that round."""
    least = result.config.objective.min_mean_samples
    queues, since = [0.0] * result.devices.num_rows, [1] * result.devices.num_rows
    taken = result.rounds.select(["round", "device", "samples", "declined"]).to_pydict()
    selections = iter(
        (round_, device, samples) for round_, device, samples, declined in zip(*taken.values(), strict=True) if not declined
    )
    upcoming, longest = next(selections, None), []
    for at in result.series.rounds:
        while upcoming is not None and upcoming[0] < at:
            round_, device, samples = upcoming
            now = queue_at(queues[device], since[device], round_, least)
            queues[device], since[device] = queue_after_selection(now, samples, least), round_ + 1
            upcoming = next(selections, None)
        longest.append(max(queue_at(queue, first, at, least) for queue, first in zip(queues, since, strict=True)))
    return longest
