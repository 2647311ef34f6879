"""The twin of a simulation at any moment: an index by (device, moment), and sums along it, in the order of a replay.

Moments are numbered. Row k of the records happens at 2k + 1; the uploads that come before it, at 2k. What was known before a
moment is, for every device, its last acceptance and its last decline before it: two binary searches. The sums are those that a
replay makes, in its order, so that they have the same bits.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.runs.rows import NOBODY, Flags, Floats, Ints, Rows
from fedtwin.twin import DeviceTwin, Fact, Twin

NEVER = np.iinfo(np.int64).max


class History:
    """Built once; ``before`` gives the twin as it stood before a moment."""

    def __init__(self, rows: Rows, samples: Ints, config: Config, where: str) -> None:
        self._rows, self._samples, self._d_min = rows, samples.astype(np.float64), config.objective.min_mean_samples
        self._devices, self._span, self._where = len(samples), 2 * rows.total + 2, where
        self._sync = config.run.mode == "sync"
        self._learns_at_once = not self._sync and config.policy.feedback == "on-selection"
        self._index_answers()
        self._index_arrivals()
        self._sum_up()

    # Moments

    @property
    def end(self) -> int:
        """After everything that is written down."""
        return 2 * self._rows.total + 1

    @property
    def end_s(self) -> float:
        rows = self._rows
        if not rows.rounds:
            return 0.0
        return float(rows.clock_s[-1]) + (float(rows.slowest_s[-1]) if self._sync else 0.0)

    @property
    def rounds(self) -> int:
        return self._rows.rounds

    def at_round(self, round_: int) -> int:
        """When the round has been opened, by an upload or otherwise, and nobody has been asked yet; 0 is before everything."""
        return 2 * int(self._rows.begins[round_ - 1]) + 1 if round_ else 0

    def at_seconds(self, seconds: float) -> int:
        """After all that happened up to then, and at that very second."""
        if seconds >= self.end_s:
            return self.end
        return 2 * int(np.searchsorted(self._rows.clock_s, seconds, side="right"))

    # The index

    def _index_answers(self) -> None:
        """Acceptances and declines, by device and then in their order. Declines before the first round are told to nobody."""
        rows = self._rows
        self._taken, self._taken_from = self._by_device(np.flatnonzero(~rows.declined))
        self._refused, self._refused_from = self._by_device(np.flatnonzero(rows.declined & (rows.round > 0)))
        told = ~rows.declined | ((rows.round > 0) & ~rows.silent)
        self._told, self._told_from = self._by_device(np.flatnonzero(told))
        self._told_keys = self._keys(self._told)
        self._taken_keys, self._refused_keys = self._keys(self._taken), self._keys(self._refused)
        self._counted: Flags = rows.round[self._taken] > 0
        self._dropped: Flags = rows.dropped[self._taken]

    def _index_arrivals(self) -> None:
        """A device has one task at a time, so its k-th upload is that of its k-th acceptance."""
        moments, arrived_s, devices, losses = self._arrivals()
        order = np.argsort(devices, kind="stable")
        moments, arrived_s, devices = moments[order], arrived_s[order], devices[order]
        place = self._taken_from[devices] + _rank(devices, self._devices)
        self._arrival, self._arrived_s = np.full(len(self._taken), NEVER), np.zeros(len(self._taken))
        self._loss = np.full(len(self._taken), np.nan)
        fits = place < self._taken_from[devices + 1]
        if fits.all():
            self._arrival[place], self._arrived_s[place], self._loss[place] = moments, arrived_s, losses[order]
        sent = 2 * self._taken + 1
        same_device = self._rows.device[self._taken[1:]] == self._rows.device[self._taken[:-1]]
        if not fits.all() or (self._arrival <= sent).any() or (self._arrival[:-1] > sent[1:])[same_device].any():
            raise FedtwinError(f"{self._where} is damaged: uploads arrive in its rounds that nobody was asked for.")
        self._arrivals_in_order = np.sort(self._arrival[~self._dropped & (self._arrival != NEVER)])
        self._version: Ints = np.searchsorted(self._arrivals_in_order, sent)

    def _arrivals(self) -> tuple[Ints, Floats, Ints, Floats]:
        """Moment, second, device and training loss of every upload that arrived."""
        rows = self._rows
        if not self._sync:
            opened = rows.begins[rows.arrived[rows.begins] != NOBODY]
            devices = rows.arrived[opened]
            if len(devices) and not 0 <= devices.min() <= devices.max() < self._devices:
                raise FedtwinError(f"{self._where} is damaged: uploads arrive in its rounds from devices not in the fleet.")
            return 2 * opened, rows.clock_s[opened], devices, rows.train_loss[opened]
        taken = np.sort(self._taken)
        round_ = rows.round[taken] - 1
        ends = np.append(rows.begins[1:], rows.total)
        return 2 * ends[round_], rows.clock_s[taken] + rows.slowest_s[round_], rows.device[taken], rows.train_loss[taken]

    def _sum_up(self) -> None:
        """What a replay adds up: per device its selections and costs, over the fleet its queues."""
        rows, taken, counted = self._rows, self._taken, self._counted
        device, d_min = rows.device[taken], self._d_min
        total = np.concatenate([[0], np.cumsum(counted)])
        self._selections: Ints = total[1:] - total[self._taken_from[device]]
        samples = rows.samples[taken].astype(np.float64)
        after = rows.queue[taken] + d_min - samples
        self._queue = np.where(counted, np.where(after < 0.0, 0.0, after), 0.0)
        self._queue_round = np.where(counted, rows.round[taken] + 1, 1)
        charged_s = rows.slowest_s[rows.round[taken] - 1] if self._sync else (rows.compute_s + rows.upload_s)[taken]
        energy_j = (rows.compute_j + rows.upload_j)[taken]
        self._cost_sum = self._sums(np.where(counted, rows.cost[taken], 0.0), self._taken_from)
        self._time_sum_s = self._sums(np.where(counted, charged_s, 0.0), self._taken_from)
        self._energy_sum_j = self._sums(np.where(counted, energy_j, 0.0), self._taken_from)
        self._gain_sum = self._sums(rows.gain[self._told], self._told_from)
        self._cpu_hz_sum = self._sums(rows.cpu_hz[self._told], self._told_from)
        self._last_loss = _last_before(~np.isnan(self._loss), self._taken_from)
        is_first = taken == taken[self._taken_from[device]]
        known_before = np.where(is_first, self._samples[device], np.roll(samples, 1))
        self._last_other_samples = _last_before(samples != known_before, self._taken_from)
        queue_before = np.where(is_first, 0.0, np.roll(self._queue, 1))
        round_before = np.where(is_first, 1, np.roll(self._queue_round, 1))
        in_order = np.argsort(taken[counted])
        self._selected = np.sort(2 * taken[counted] + 1)
        self._queue_sum = np.cumsum(np.append(0.0, (self._queue - queue_before)[counted][in_order]))
        self._queue_round_sum = self._devices + np.cumsum(np.append(0, (self._queue_round - round_before)[counted][in_order]))

    def _sums(self, values: Floats, begins: Ints) -> Floats:
        """Of every device one after the other, as a replay adds them."""
        for first, last in pairwise(begins.tolist()):
            if last - first > 1:
                np.cumsum(values[first:last], out=values[first:last])
        return values

    def _by_device(self, chosen: Ints) -> tuple[Ints, Ints]:
        """Rows sorted by device, each device's in order, and where each device's begin."""
        devices = self._rows.device[chosen]
        begins = np.concatenate([[0], np.cumsum(np.bincount(devices, minlength=self._devices))])
        return chosen[np.argsort(devices, kind="stable")], begins

    def _keys(self, chosen: Ints) -> Ints:
        return self._rows.device[chosen] * self._span + (2 * chosen + 1)

    # The twin

    def before(self, moment: int) -> Twin:
        """The twin that a replay of all that happened before the moment ends with, to the last bit."""
        selected = int(np.searchsorted(self._selected, moment))
        return Twin(
            self._devices_before(moment),
            self._d_min,
            model_version=int(np.searchsorted(self._arrivals_in_order, moment)),
            queue_sum=float(self._queue_sum[selected]),
            queue_round_sum=int(self._queue_round_sum[selected]),
        )

    def _devices_before(self, moment: int) -> tuple[DeviceTwin, ...]:
        rows, wanted = self._rows, np.arange(self._devices) * self._span + moment
        taken_to = np.searchsorted(self._taken_keys, wanted)
        refused_to = np.searchsorted(self._refused_keys, wanted)
        told_to = np.searchsorted(self._told_keys, wanted)
        was_taken, was_told = taken_to > self._taken_from[:-1], told_to > self._told_from[:-1]
        last = np.where(was_taken, taken_to - 1, 0)
        taken_row = np.where(was_taken, _at(self._taken, last), NOBODY)
        told_row = np.where(was_told, _at(self._told, told_to - 1), NOBODY)
        heard = told_to - self._told_from[:-1]
        counted = ~was_taken | _at(self._counted, last)
        in_flight = was_taken & (_at(self._arrival, last) >= moment)
        selections = np.where(was_taken, _at(self._selections, last), 0)
        unknown = in_flight & counted & (not self._learns_at_once)
        observations = selections - unknown
        learned = [
            np.where(observations > 0, _at(sums, last - unknown), 0.0).tolist()
            for sums in (self._cost_sum, self._time_sum_s, self._energy_sum_j)
        ]
        gain_sum, cpu_hz_sum = (
            np.where(was_told, _at(sums, told_to - 1), 0.0).tolist() for sums in (self._gain_sum, self._cpu_hz_sum)
        )
        has_arrived = was_taken & (taken_to - in_flight > self._taken_from[:-1])
        loss_at = np.where(has_arrived, _at(self._last_loss, last - in_flight), NOBODY)
        samples_at = np.where(was_taken, _at(self._last_other_samples, last), NOBODY)
        samples_row = np.where(samples_at != NOBODY, _at(self._taken, samples_at), NOBODY)
        announced = _facts(samples_row, rows.samples.astype(np.float64), _at(rows.clock_s, samples_row).tolist())
        told_s = _at(rows.clock_s, told_row).tolist()
        estimated = in_flight | (was_taken & _at(self._dropped, last))
        known_s = np.where(estimated, _at(rows.clock_s, taken_row), _at(self._arrived_s, last))
        seen = zip(
            [told or Fact(first, 0.0, "configured") for told, first in zip(announced, self._samples.tolist(), strict=True)],
            in_flight.tolist(),
            _facts(told_row, rows.gain, told_s),
            _facts(told_row, rows.cpu_hz, told_s),
            _facts(taken_row, rows.compute_s, known_s.tolist(), estimated),
            selections.tolist(),
            (refused_to - self._refused_from[:-1]).tolist(),
            observations.tolist(),
            learned[0],
            np.where(was_taken, _at(self._queue, last), 0.0).tolist(),
            np.where(was_taken, _at(self._queue_round, last), 1).tolist(),
            np.where(was_taken, _at(self._version, last), NOBODY).tolist(),
            counted.tolist(),
            learned[1],
            learned[2],
            gain_sum,
            heard.tolist(),
            cpu_hz_sum,
            _facts(loss_at, self._loss, _at(self._arrived_s, loss_at).tolist()),
            strict=True,
        )
        return tuple(
            DeviceTwin(
                samples, "in-flight" if busy else "idle", gain, cpu_hz, compute_s, chosen, declines,
                observed, costs, queue, since, version if version != NOBODY else None, counts,
                seconds, joules, gains, told, cpus, told, loss,
            )
            for (
                samples, busy, gain, cpu_hz, compute_s, chosen, declines, observed, costs, queue, since, version, counts,
                seconds, joules, gains, told, cpus, loss,
            ) in seen
        )  # fmt: skip


def _facts(row: Ints, values: Floats, learned_s: list[float], estimated: Flags | None = None) -> list[Fact | None]:
    """What was learned in these rows; None where there is no row."""
    guessed = [False] * len(row) if estimated is None else estimated.tolist()
    found = zip(row.tolist(), _at(values, row).tolist(), learned_s, guessed, strict=True)
    return [Fact(value, at_s, "estimated" if guess else "measured") if k != NOBODY else None for k, value, at_s, guess in found]


def _at(values: NDArray[Any], places: Ints) -> NDArray[Any]:
    """The values there; whatever where there are none, for a place that is not used."""
    return values[places] if len(values) else np.zeros(len(places), values.dtype)


def _last_before(found: Flags, begins: Ints) -> Ints:
    """Of every place the last one of the same device, itself included, where something was found; −1 where there is none."""
    places = np.maximum.accumulate(np.where(found, np.arange(len(found)), -1)) if len(found) else np.zeros(0, np.int64)
    first = np.repeat(begins[:-1], np.diff(begins))
    last: Ints = np.where(places >= first, places, -1)
    return last


def _rank(devices: Ints, count: int) -> Ints:
    """Of every entry of a sorted array, how many of the same device come before it."""
    begins = np.concatenate([[0], np.cumsum(np.bincount(devices, minlength=count))])
    ranks: Ints = np.arange(len(devices)) - begins[devices]
    return ranks
