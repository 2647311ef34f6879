"""Which engine runs a configuration, and the run by the compiled one."""

from typing import Literal

import pyarrow as pa

from fedtwin.compiling import can_compile
from fedtwin.config import Config, identity_of
from fedtwin.draws import Purpose, ranks
from fedtwin.errors import FedtwinError
from fedtwin.records import RunFolder
from fedtwin.records.folder import ROWS_PER_PART
from fedtwin.records.summary import run_summary
from fedtwin.sim.callbacks import Listeners
from fedtwin.sim.fast.compile import exchanged_in, obstacle_to_compiling, seconds_to_compile
from fedtwin.sim.fast.layout import Records
from fedtwin.sim.fast.run import Sink, play
from fedtwin.sim.fast.tables import to_arrow, to_rows
from fedtwin.sim.result import Result, devices_table
from fedtwin.sim.wanted import Wanted
from fedtwin.world.fleet import fleet_columns

EngineName = Literal["readable", "compiled"]
READABLE_ROUND_S, READABLE_DEVICE_S = 3e-5, 1.5e-6


def readable_seconds(config: Config) -> float:
    """About how long the readable engine takes."""
    return config.run.rounds * (READABLE_ROUND_S + READABLE_DEVICE_S * config.fleet.devices)


def engine_for(config: Config, *, trace: bool = False, work_s: float | None = None) -> EngineName:
    """The configured engine; ``auto``: the compiled one where it can and is quicker.

    ``work_s`` is how long the readable one would take for all the runs that the compiled code would serve; one by default.
    """
    asked = config.run.engine
    if asked == "readable":
        return "readable"
    obstacle = _obstacle(config, trace=trace)
    if asked == "compiled":
        if obstacle is not None:
            raise FedtwinError(f"run.engine = 'compiled' cannot be had with {obstacle}: say 'auto' or 'readable'.")
        return "compiled"
    exchanged = exchanged_in(config)
    if obstacle is not None or not can_compile() or obstacle_to_compiling(exchanged) is not None:
        return "readable"
    work_s = readable_seconds(config) if work_s is None else work_s
    needed_s = seconds_to_compile(exchanged, work_s)
    return "compiled" if work_s > needed_s else "readable"


def _obstacle(config: Config, *, trace: bool) -> str | None:
    if trace:
        return "a trace"
    return "a [learning] section" if config.learning is not None else None


class _Records(Sink):
    """Rows go to the folder or stay in memory, as far as they are kept, and to whoever listens."""

    def __init__(self, folder: RunFolder | None, listeners: Listeners, *, in_memory: bool, timeout: bool) -> None:
        self._timeout = timeout
        self._folder = folder if folder is not None and folder.rows_per_part else None
        self._tables: list[pa.Table] | None = [] if folder is None and in_memory else None
        self._listeners = listeners if listeners.of_rounds else None
        self.wants_rows = any(to is not None for to in (self._folder, self._tables, self._listeners))

    def start(self, rows: Records) -> None:
        if self._folder is not None:
            self._folder.write_start_table(to_arrow(rows, timeout=self._timeout))

    def part(self, rows: Records) -> None:
        if self._folder is not None:
            self._folder.add_part(to_arrow(rows, timeout=self._timeout))
        elif self._tables is not None:
            self._tables.append(to_arrow(rows, timeout=self._timeout))

    def partial(self, rows: Records) -> None:
        if self._folder is not None:
            self._folder.save_part(to_arrow(rows, timeout=self._timeout))

    def fresh(self, rows: Records) -> None:
        if self._listeners is not None:
            for row in to_rows(rows):
                self._listeners.tell_row(row)

    def table(self) -> pa.Table | None:
        return pa.concat_tables(self._tables) if self._tables is not None else None


def run_compiled(config: Config, wanted: Wanted, *, resume: bool) -> Result:
    """The same result as the readable engine's; a resumed run is played again from the start, which is quick."""
    if (obstacle := obstacle_to_compiling(exchanged_in(config))) is not None:
        raise obstacle
    identity, out = identity_of(config), wanted.out
    fleet = fleet_columns(config)
    tie_ranks = ranks(config.run.seed, Purpose.TIES, len(fleet.samples))
    devices = devices_table(fleet, tie_ranks)
    folder = RunFolder(out, config, devices, name=identity.hash, trace=False, resume=resume) if out is not None else None
    timeout = config.run.sync_timeout_s is not None
    records = _Records(folder, wanted.listeners, in_memory=wanted.records, timeout=timeout)
    try:
        played = play(
            config,
            fleet,
            tie_ranks,
            checkpoints=wanted.checkpoints,
            rows_per_part=(folder.rows_per_part if folder is not None else 0) or ROWS_PER_PART,
            sink=records if records.wants_rows else None,
            progress=wanted.progress,
        )
        summary = played.tally.summary(
            virtual_time_s=played.clock_s,
            rounds=played.rounds,
            trained=[float(played.trained.min())],
            total_queue=played.total_queue,
            timeout=timeout,
        )
        if folder is not None:
            folder.finish(run_summary(config, summary, identity))
    finally:
        if folder is not None:
            folder.release()
    return Result(config, summary, devices, played.series, [], out, identity, _rounds=records.table())
