"""Which engine runs a configuration, and the run by the compiled one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from fedtwin.compiling import can_compile
from fedtwin.config import Config, identity_of
from fedtwin.draws import Purpose, ranks
from fedtwin.errors import FedtwinError
from fedtwin.policies import policy_of, power_rule
from fedtwin.records import RunFolder
from fedtwin.records.folder import ROWS_PER_PART
from fedtwin.records.summary import run_summary
from fedtwin.sim.fast.compile import obstacle_to_compiling, seconds_to_compile
from fedtwin.sim.fast.run import Sink, play
from fedtwin.sim.result import Result, Series, devices_table
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
    policy = policy_of(config)
    if obstacle is not None or not can_compile() or obstacle_to_compiling(policy) is not None:
        return "readable"
    work_s = readable_seconds(config) if work_s is None else work_s
    needed_s = seconds_to_compile(policy, power_rule(config), config.run.mode, work_s)
    return "compiled" if work_s > needed_s else "readable"


def _obstacle(config: Config, *, trace: bool) -> str | None:
    if trace:
        return "a trace"
    return "a [learning] section" if config.learning is not None else None


class _FolderSink(Sink):
    def __init__(self, folder: RunFolder) -> None:
        self.start, self.part, self.partial = folder.write_start_table, folder.add_part, folder.save_part  # type: ignore[method-assign]


class _TableSink(Sink):
    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def part(self, table: pa.Table) -> None:
        self.tables.append(table)


def run_compiled(
    config: Config,
    out: Path | None,
    *,
    resume: bool,
    records: bool,
    checkpoints: Sequence[int],
    progress: Callable[[int], None] | None,
) -> Result:
    """The same result as the readable engine's; a resumed run is played again from the start, which is quick."""
    identity = identity_of(config)
    fleet = fleet_columns(config)
    tie_ranks = ranks(config.run.seed, Purpose.TIES, len(fleet.samples))
    devices = devices_table(fleet, tie_ranks)
    folder = RunFolder(out, config, devices, name=identity.hash, trace=False, resume=resume) if out is not None else None
    try:
        kept = _TableSink() if folder is None and records else None
        sink = _FolderSink(folder) if folder is not None and folder.rows_per_part else kept
        rows = folder.rows_per_part if folder is not None else ROWS_PER_PART
        played = play(config, fleet, tie_ranks, checkpoints=checkpoints, rows_per_part=rows, sink=sink, progress=progress)
        summary = played.tally.summary(
            virtual_time_s=played.clock_s,
            rounds=played.rounds,
            trained=[float(played.trained.min())],
            total_queue=played.total_queue,
        )
        if folder is not None:
            folder.finish(run_summary(config, summary, identity))
    finally:
        if folder is not None:
            folder.release()
    curve = played.curve
    series = Series(curve["round"].tolist(), curve["mean_cost"].tolist(), curve["total_queue"].tolist())
    table = pa.concat_tables(kept.tables) if kept is not None else None
    return Result(config, summary, devices, series, [], out, identity, table)
