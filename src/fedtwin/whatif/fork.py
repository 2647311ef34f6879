"""A run as it stands between two rounds, as far as the server knows: the twin, the clock, and who is in flight until when."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import Quantities, Terms, own_terms, terms_of
from fedtwin.formulas.timeout import timeout_of
from fedtwin.given import whole_number
from fedtwin.runs import Run
from fedtwin.runs.rows import NOBODY, Answers, Ints
from fedtwin.runs.simulated import SimulatedRun
from fedtwin.twin import Twin
from fedtwin.twin.update import with_status
from fedtwin.whatif.heard import answers_of


class Flight(NamedTuple):
    """A task under way: when its upload is due by what its device has told, and what it is charged."""

    at_s: float
    device: int
    compute_s: float
    upload_s: float
    compute_j: float
    upload_j: float
    cost: float

    @property
    def time_s(self) -> float:
        return self.compute_s + self.upload_s

    @property
    def energy_j(self) -> float:
        return self.compute_j + self.upload_j


@dataclass(frozen=True)
class Fork:
    """``round`` is the last that was opened, and it is over; ``waiting``: the next one waits for an upload.

    ``own`` are the terms that are a device's own, ``samples`` its D_n, ``spreads`` by which part of it they stray. ``drained``
    and ``lost`` devices are asked no more; the last ``added`` ones are new.
    """

    config: Config
    twin: Twin
    round: int
    clock_s: float
    waiting: bool
    flights: tuple[Flight, ...]
    selections: int
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    own: dict[str, Any]
    samples: Ints
    rows: Answers
    live: bool
    states: tuple[Any, ...] | None = None
    drained: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    added: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def devices(self) -> int:
        return len(self.twin.devices)

    @property
    def sync(self) -> bool:
        return self.config.run.mode == "sync"

    def terms_of(self, device: int) -> Terms:
        return own_terms(terms_of(self.config), Quantities(*(float(self.own[name][device]) for name in Quantities._fields)))

    def until(self, rounds: int) -> "Fork":
        """To be played for so many rounds; in synchronous mode selections."""
        begun = max(self.selections, self.round) if self.sync else self.round
        return replace(self, config=_with(self.config, "run", rounds=begun + rounds), selections=begun)


def fork_of(run: Run, at: int | None) -> Fork:
    """The run when round ``at`` is to be opened; None: after all that is written down."""
    if not run.config.run.records:
        raise FedtwinError(f"{str(run.path)!r} has no records (run.records = false): there is nothing to fork.")
    table = answers_of(run)
    last = int(table.round.max(initial=0))
    round_ = _round_given(at, last, run)
    live = not isinstance(run, SimulatedRun)
    twin, config = _twin_of(run, round_, last), _config_of(run, live=live)
    devices = run.devices
    if devices.num_rows < len(twin.devices):
        raise FedtwinError(f"{str(run.path)!r} is damaged: its table of devices has not all of them.")
    count = len(twin.devices)
    config = _with(config, "fleet", devices=count, channels=min(config.fleet.channels, count), file=None)
    config = _with(config, "objective", min_mean_samples=twin.min_mean_samples)
    if round_ <= last:
        clock_s = float(table.clock_s[np.flatnonzero(table.round == round_)].min())
    else:
        clock_s = max(_end_s(table, config), float(run.summary.get("virtual_time_s", 0.0)) if live else 0.0)
    before = table.only((table.round < round_) & (table.clock_s <= clock_s))
    fork = Fork(
        config,
        twin,
        max(round_ - 1, *(device.queue_round - 1 for device in twin.devices)) if live else round_ - 1,
        clock_s,
        False,
        () if config.run.mode == "sync" else _flights(run, twin, before, clock_s, live=live),
        int((~before.declined & (before.round > 0)).sum()),
        tuple(devices["tie_rank"].to_numpy()[:count].tolist()),
        _names(run, count),
        {name: devices[name].to_numpy()[:count].copy() for name in Quantities._fields},
        devices["samples"].to_numpy()[:count].astype(np.int64),
        before,
        live,
    )
    if live:
        fork = _as_far_as_it_is_written(fork, run.drained(round=round_ if round_ <= last else None))
    full = len(fork.flights) >= config.fleet.channels
    passed = round_ > last and len(before) > 0 and bool(before.declined[-1])
    return replace(fork, waiting=not fork.sync and (full or passed))


def _as_far_as_it_is_written(fork: Fork, drained: Collection[str]) -> Fork:
    """A synchronous round under way is begun anew, so whoever is in it is free. Who is drained is not there for a future, and
    what it has in flight is not waited for.
    """
    twin, out = fork.twin, tuple(device for device, name in enumerate(fork.names) if name in drained)
    flights = tuple(one for one in fork.flights if one.device not in out)
    in_flight = {one.device for one in flights}
    for device in range(fork.devices):
        if twin.devices[device].status == "in-flight" and device not in in_flight:
            twin = with_status(twin, device, "idle")
    for device in out:
        twin = with_status(twin, device, "offline")
    return replace(fork, twin=twin, flights=flights, drained=out)


def _round_given(at: int | None, last: int, run: Run) -> int:
    newest = last if last > 0 and _is_torn(run) else last + 1
    if at is None:
        return newest
    number = whole_number(at)
    if number is None or not 1 <= number <= newest:
        raise FedtwinError(f"at = {at!r} is not allowed: {str(run.path)!r} can be forked at the rounds 1 to {newest}.")
    return number


def _is_torn(run: Run) -> bool:
    """Whether the last round of a simulation may still go on: its last answer so far is a decline."""
    if run.finished or run.config.run.mode == "sync" or not isinstance(run, SimulatedRun):
        return False
    return bool(run.rounds["declined"][-1].as_py())


def _twin_of(run: Run, round_: int, last: int) -> Twin:
    return run.twin(round=round_) if round_ <= last else run.twin()


def _config_of(run: Run, *, live: bool) -> Config:
    """The settings in force; of a live run also those that were changed while it went on, and limits taken from its fleet."""
    config = run.config
    if not live:
        return config
    for name, value in run.summary.get("changed", {}).items():
        section, _, key = name.partition(".")
        if section in ("policy", "objective", "fleet", "radio"):
            config = _with(config, section, **{key: value})
    limits = {name: value for name, value in (run.summary.get("limits") or {}).items() if name != "devices"}
    config = _with(config, "objective", **limits)
    return _with(config, "policy", feedback="on-arrival")


def _with(config: Config, section: str, **changed: Any) -> Config:
    """Values that are known to be allowed."""
    return config.model_copy(update={section: getattr(config, section).model_copy(update=changed)})


def _names(run: Run, count: int) -> tuple[str, ...]:
    table = run.devices
    if "name" in table.column_names:
        return tuple(str(name) for name in table["name"].to_pylist()[:count])
    return tuple(f"device-{device}" for device in range(count))


def _end_s(table: Answers, config: Config) -> float:
    """When the last round was over, so that the next one can be opened."""
    if len(table) == 0:
        return 0.0
    if config.run.mode == "async":
        return float(table.clock_s.max())
    last = table.only(table.round == table.round[-1])
    taken = last.only(~last.declined)
    slowest_s = float(taken.time_s.max()) if len(taken) else config.objective.max_time_s
    return float(last.clock_s[-1]) + min(slowest_s, timeout_of(config))


def _flights(run: Run, twin: Twin, before: Answers, clock_s: float, *, live: bool) -> tuple[Flight, ...]:
    """Of every device in flight its last task: by its row, which has what a device told, or by the prediction of a live one."""
    if live:
        return _live_flights(run, twin, clock_s)
    found = []
    last = np.full(len(twin.devices), NOBODY)
    taken = np.flatnonzero(~before.declined)
    np.maximum.at(last, before.device[taken], taken)
    for device, known in enumerate(twin.devices):
        if known.status == "in-flight":
            row = int(last[device])
            compute_s, upload_s = float(before.compute_s[row]), float(before.upload_s[row])
            charged = float(before.compute_j[row]), float(before.upload_j[row]), float(before.cost[row])
            due_s = float(before.clock_s[row]) + compute_s + upload_s
            found.append(Flight(due_s, device, compute_s, upload_s, *charged))
    return tuple(sorted(found))


def _live_flights(run: Run, twin: Twin, clock_s: float) -> tuple[Flight, ...]:
    """A task that is overdue is expected at once. Of its energy only the sum is known."""
    tasks = run.tasks.select(["device", "dispatched_s", "predicted_s", "predicted_j", "predicted_cost"]).to_pylist()
    sent = {task["device"]: task for task in tasks if task["dispatched_s"] <= clock_s}
    found = []
    for device, known in enumerate(twin.devices):
        if known.status == "in-flight" and device in sent:
            task = sent[device]
            time_s, due_s = float(task["predicted_s"]), float(task["dispatched_s"]) + float(task["predicted_s"])
            compute_s = min(known.compute_s.value, time_s) if known.compute_s is not None else time_s
            charged = float(task["predicted_j"]), 0.0, float(task["predicted_cost"])
            found.append(Flight(max(due_s, clock_s), device, compute_s, time_s - compute_s, *charged))
    return tuple(sorted(found))
