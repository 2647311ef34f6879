"""The twin of a simulation at any moment: an index by (device, moment), and sums along it, in the order of a replay.

Moments are numbered. Row k of the records happens at 2k + 1; the uploads that come before it, at 2k. What was known before a
moment is, for every device, its last acceptance and its last decline before it: two binary searches. The sums are those that a
replay makes, in its order, so that they have the same bits.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.runs.rows import NOBODY, SMALL, Flags, Floats, Ints, Rows
from fedtwin.twin import DeviceTwin, Fact, Twin

Late = Callable[[str], "NDArray[Any]"]


class History:
    """Built once; ``before`` gives the twin as it stood before a moment. A column of the rows is let go as soon as the index
    has taken it in, so that nobody needs memory for both; those that the rows are without are read when it does, by ``late``.
    """

    def __init__(self, rows: Rows, samples: Ints, config: Config, where: str, late: Late | None = None) -> None:
        self._rows, self._samples, self._d_min = rows, samples.astype(np.float64), config.objective.min_mean_samples
        self._late = late
        self._devices, self._where, self.rounds = len(samples), where, rows.rounds
        self._sync = config.run.mode == "sync"
        self._learns_at_once = not self._sync and config.policy.feedback == "on-selection"
        self.end_s = 0.0
        if rows.rounds:
            self.end_s = float(rows.clock_s[-1]) + (float(rows.slowest_s[-1]) if self._sync else 0.0)
        self._index_answers()
        del rows
        self._let_go("staleness", "time_ok", "energy_ok")
        self._index_arrivals()
        self._let_go("arrived", "train_loss", "begins", "dropped", "declined", "silent")
        self._sum_up()
        self._late = None

    # Moments

    @property
    def end(self) -> int:
        """After everything that is written down. The uploads before a row that is not there yet are not: their moment comes
        with it. Those of a synchronous round are known when it is.
        """
        return 2 * self._rows.total + int(self._sync)

    def at_round(self, round_: int) -> int:
        """When the round has been opened, by an upload or otherwise, and nobody has been asked yet; 0 is before everything."""
        return 2 * int(np.searchsorted(self._rows.round, round_)) + 1 if round_ else 0

    def at_seconds(self, seconds: float) -> int:
        """After all that happened up to then, and at that very second."""
        if seconds >= self.end_s:
            return self.end
        return 2 * int(np.searchsorted(self._rows.clock_s, seconds, side="right"))

    def when(self, moment: int) -> tuple[int, float, int]:
        """The round that was opened last before a moment, the second, and the round t of its queues Q_n(t)."""
        rows, k = self._rows, moment // 2
        if k >= rows.total:
            return self.rounds, self.end_s, self.rounds + 1
        last = k if moment % 2 else k - 1
        round_, seconds = (int(rows.round[last]), float(rows.clock_s[last])) if last >= 0 else (0, 0.0)
        return round_, seconds, max(int(rows.round[k]), 1)

    # The index

    def _index_answers(self) -> None:
        """Acceptances and declines, by device and then in their order. Declines before the first round are told to nobody."""
        rows = self._rows
        self._taken, self._taken_from = self._by_device(np.flatnonzero(~rows.declined))
        self._refused, self._refused_from = self._by_device(np.flatnonzero(rows.declined & (rows.round > 0)))
        self._told, self._told_from = self._taken, self._taken_from
        if rows.declined.any():
            told = ~rows.declined | ((rows.round > 0) & ~rows.silent)
            self._told, self._told_from = self._by_device(np.flatnonzero(told))
        self._counted: Flags = rows.round[self._taken] > 0
        self._dropped: Flags = rows.dropped[self._taken]

    def _index_arrivals(self) -> None:
        """A device has one task at a time, so its k-th upload is that of its k-th acceptance."""
        rows, never = self._rows, self.end + 1
        told_in, moments, devices = self._arrivals()
        counts = np.bincount(devices, minlength=self._devices)
        fits = bool((counts <= np.diff(self._taken_from)).all())
        self._arrival, self._arrived_s = _small(np.full(len(self._taken), never)), np.zeros(0)
        self._loss = _same(np.nan, len(self._taken))
        if fits:
            place = _small(np.repeat(self._taken_from[:-1] - (np.cumsum(counts) - counts), counts))
            place += np.arange(len(place), dtype=place.dtype)
            order = np.argsort(devices, kind="stable")
            self._arrival[place] = moments[order]
            told_in = told_in[order]
            if self._sync:  # otherwise a row tells the second
                self._arrived_s = np.zeros(len(self._taken))
                self._arrived_s[place] = rows.clock_s[told_in] + rows.slowest_s[rows.round[told_in] - 1]
            if not np.isnan(rows.train_loss).all():
                self._loss = np.full(len(self._taken), np.nan)
                self._loss[place] = rows.train_loss[told_in]
        sent = 2 * self._taken + 1
        same_device = rows.device[self._taken[1:]] == rows.device[self._taken[:-1]]
        if not fits or (self._arrival <= sent).any() or (self._arrival[:-1] > sent[1:])[same_device].any():
            raise FedtwinError(f"{self._where} is damaged: uploads arrive in its rounds that nobody was asked for.")
        self._arrivals_in_order = np.sort(self._arrival[~self._dropped & (self._arrival != never)])

    def _arrivals(self) -> tuple[Ints, Ints, Ints]:
        """Of every upload that arrived the row that tells of it, its moment and its device."""
        rows = self._rows
        if not self._sync:
            opened = rows.begins[rows.arrived[rows.begins] != NOBODY]
            devices = rows.arrived[opened]
            if len(devices) and not 0 <= devices.min() <= devices.max() < self._devices:
                raise FedtwinError(f"{self._where} is damaged: uploads arrive in its rounds from devices not in the fleet.")
            return opened, 2 * opened, devices
        taken = np.sort(self._taken)
        ends = np.append(rows.begins[1:], rows.total)
        return taken, 2 * ends[rows.round[taken] - 1], rows.device[taken]

    def _sum_up(self) -> None:
        """What a replay adds up: per device its selections and costs, over the fleet its queues."""
        taken, counted = self._taken, self._counted
        self._uncounted = np.bincount(self._rows.device[taken[~counted]], minlength=self._devices)  # they come first
        self._let_go("device")
        chosen_once = np.flatnonzero(np.diff(self._taken_from))
        firsts = self._taken_from[chosen_once]
        self._sum_queues(firsts)
        self._cost_sum = self._counted_sums(self._take_out("cost")[taken])
        energy_j = self._take_out("compute_j")[taken]
        energy_j += self._take_out("upload_j")[taken]
        self._energy_sum_j = self._counted_sums(energy_j)
        self._time_sum_s = self._counted_sums(self._charged_s())
        self._let_go("upload_s", "slowest_s")
        self._last_loss = _last_before(~np.isnan(self._loss), self._taken_from)
        samples = self._rows.samples[taken]
        others = np.zeros(len(samples), bool)
        others[1:] = samples[1:] != samples[:-1]
        others[firsts] = samples[firsts] != self._samples[chosen_once]
        self._last_other_samples = _last_before(others, self._taken_from)
        del samples
        self._gain_sum = self._sums(self._rows.gain[self._told], self._told_from)
        self._cpu_hz_sum = self._sums(self._rows.cpu_hz[self._told], self._told_from)

    def _sum_queues(self, firsts: Ints) -> None:
        """Q_n after every acceptance, eq. (14), and what all of them add up to, in the order of the rows."""
        taken, counted, total = self._taken, self._counted, self._rows.total
        queue = self._take_out("queue")[taken]
        queue += self._d_min
        queue -= self._rows.samples[taken]
        queue[(queue < 0.0) | ~counted] = 0.0
        grown = queue.copy()
        grown[1:] -= queue[:-1]
        grown[firsts] = queue[firsts]
        in_order, is_counted = np.zeros(total), np.zeros(total, bool)
        in_order[taken], is_counted[taken] = grown, counted
        del grown
        self._queue, self._queue_sum = queue, np.cumsum(np.append(0.0, in_order[is_counted]))

    def _charged_s(self) -> Floats:
        rows, taken = self._rows, self._taken
        return rows.slowest_s[rows.round[taken] - 1] if self._sync else rows.time_s[taken]

    def _counted_sums(self, of_taken: Floats) -> Floats:
        of_taken[~self._counted] = 0.0
        return self._sums(of_taken, self._taken_from)

    def _take_out(self, column: str) -> NDArray[Any]:
        """A column that is needed once."""
        found: NDArray[Any] = getattr(self._rows, column)
        if self._late is not None and not len(found):
            found = self._late(column)
        self._let_go(column)
        return found

    def _let_go(self, *columns: str) -> None:
        gone: dict[str, Any] = dict.fromkeys(columns, np.zeros(0))
        self._rows = replace(self._rows, **gone)

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
        return _small(chosen[np.argsort(devices, kind="stable")]), begins

    # The twin

    def before(self, moment: int) -> Twin:
        """The twin that a replay of all that happened before the moment ends with, to the last bit."""
        devices = self._devices_before(moment)
        return Twin(
            devices,
            self._d_min,
            model_version=int(np.searchsorted(self._arrivals_in_order, moment)),
            queue_sum=float(self._queue_sum[sum(device.selections for device in devices)]),
            queue_round_sum=sum(device.queue_round for device in devices),
        )

    def _arrived_at(self, places: Ints) -> Floats:
        """The second the upload of an acceptance came; whatever where it has not."""
        if self._sync:
            return _at(self._arrived_s, places)
        return _at(self._rows.clock_s, np.minimum(_at(self._arrival, places) // 2, self._rows.total - 1))

    def _devices_before(self, moment: int) -> tuple[DeviceTwin, ...]:
        rows = self._rows
        taken_to = _before(self._taken, self._taken_from, moment)
        refused_to = _before(self._refused, self._refused_from, moment)
        told_to = taken_to if self._told is self._taken else _before(self._told, self._told_from, moment)
        was_taken, was_told = taken_to > self._taken_from[:-1], told_to > self._told_from[:-1]
        last = np.where(was_taken, taken_to - 1, 0)
        taken_row = np.where(was_taken, _at(self._taken, last), NOBODY)
        told_row = np.where(was_told, _at(self._told, told_to - 1), NOBODY)
        heard = told_to - self._told_from[:-1]
        counted = ~was_taken | _at(self._counted, last)
        in_flight = was_taken & (_at(self._arrival, last) >= moment)
        selections = np.maximum(taken_to - self._taken_from[:-1] - self._uncounted, 0)
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
        announced = _facts(samples_row, rows.samples, _at(rows.clock_s, samples_row).tolist())
        told_s = _at(rows.clock_s, told_row).tolist()
        estimated = in_flight | (was_taken & _at(self._dropped, last))
        known_s = np.where(estimated, _at(rows.clock_s, taken_row), self._arrived_at(last))
        first_samples = _tuples(Fact, self._samples.tolist(), repeat(0.0), repeat("configured"))
        version = np.where(was_taken, np.searchsorted(self._arrivals_in_order, 2 * taken_row + 1), NOBODY).tolist()
        return tuple(
            _tuples(
                DeviceTwin,
                [told or first for told, first in zip(announced, first_samples, strict=True)],
                ["in-flight" if busy else "idle" for busy in in_flight.tolist()],
                _facts(told_row, rows.gain, told_s),
                _facts(told_row, rows.cpu_hz, told_s),
                _facts(taken_row, rows.compute_s, known_s.tolist(), estimated),
                selections.tolist(),
                (refused_to - self._refused_from[:-1]).tolist(),
                observations.tolist(),
                learned[0],
                np.where(was_taken, _at(self._queue, last), 0.0).tolist(),
                np.where(was_taken & counted, _at(rows.round, taken_row) + 1, 1).tolist(),
                [number if number != NOBODY else None for number in version],
                counted.tolist(),
                learned[1],
                learned[2],
                gain_sum,
                heard.tolist(),
                cpu_hz_sum,
                heard.tolist(),
                _facts(loss_at, self._loss, self._arrived_at(loss_at).tolist()),
            )
        )


def _tuples(kind: type[Any], *columns: Iterable[Any]) -> list[Any]:
    """Named tuples from columns in the order of their fields, made without a call in Python for each of thousands."""
    return list(map(tuple.__new__, repeat(kind), zip(*columns, strict=False)))


def _before(places: Ints, begins: Ints, moment: int) -> Ints:
    """Of every device the place behind its last row before the moment: a binary search of all devices at once."""
    low, high = begins[:-1].copy(), begins[1:].copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        earlier = open_ & (2 * _at(places, np.minimum(middle, len(places) - 1)).astype(np.int64) + 1 < moment)
        low = np.where(earlier, middle + 1, low)
        high = np.where(open_ & ~earlier, middle, high)
    return low


def _facts(row: Ints, values: NDArray[Any], learned_s: list[float], estimated: Flags | None = None) -> list[Fact | None]:
    """What was learned in these rows; None where there is no row."""
    guessed = repeat(False) if estimated is None else estimated.tolist()
    sources = ("estimated" if guess else "measured" for guess in guessed)
    found: list[Fact | None] = _tuples(Fact, _at(values, row).astype(np.float64).tolist(), learned_s, sources)
    for place in np.flatnonzero(row == NOBODY).tolist():
        found[place] = None
    return found


def _at(values: NDArray[Any], places: Ints) -> NDArray[Any]:
    """The values there; whatever where there are none, for a place that is not used."""
    return values[places] if len(values) else np.zeros(len(places), values.dtype)


def _last_before(found: Flags, begins: Ints) -> Ints:
    """Of every place the last one of the same device, itself included, where something was found; −1 where there is none."""
    if not found.any():
        return _same(NOBODY, len(found))
    kind = np.int32 if len(found) < SMALL else np.int64
    places: Ints = np.arange(len(found), dtype=kind)
    places[~found] = NOBODY
    np.maximum.accumulate(places, out=places)
    places[places < np.repeat(begins[:-1].astype(kind), np.diff(begins))] = NOBODY
    return places


def _small(numbers: Ints) -> Ints:
    """In 32 bits where they fit: an index of a million rows is made of many such."""
    fits = not len(numbers) or (int(numbers.min()) > -SMALL and int(numbers.max()) < SMALL)
    return numbers.astype(np.int32) if fits else numbers


def _same(value: Any, count: int) -> NDArray[Any]:
    """The same value everywhere, which takes the memory of one."""
    return np.broadcast_to(np.asarray(value), (count,))
