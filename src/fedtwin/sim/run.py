"""``simulate(config)``: one run, its summary and its records."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedtwin import __version__
from fedtwin.config import Config, config_hash
from fedtwin.errors import FedtwinWarning
from fedtwin.physics.fleet import largest_min_mean_samples, make_fleet
from fedtwin.policies import power_rule, scheme_name
from fedtwin.records import DEVICES, SCHEMA_VERSION, Row, RunFolder, Summary, Tally, read_rounds, to_table
from fedtwin.records.folder import ROWS_PER_PART
from fedtwin.sim import asynchronous, synchronous
from fedtwin.sim.engine import Engine

ROWS_PER_PROGRESS = 500


@dataclass
class Series:
    """Cumulative mean cost and total queue as they stood at chosen rounds."""

    rounds: list[int] = field(default_factory=list)
    mean_cost: list[float] = field(default_factory=list)
    total_queue: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """One finished run. ``rounds`` is an Arrow table, read from the run folder if there is one."""

    config: Config
    summary: Summary
    devices: pa.Table
    series: Series
    folder: Path | None
    _rounds: pa.Table | None

    @property
    def rounds(self) -> pa.Table:
        if self.folder is not None:
            return read_rounds(self.folder)
        if self._rounds is None:
            raise ValueError("this run kept no records: call simulate(config, records=True)")
        return self._rounds

    def to_pandas(self) -> Any:
        """The rounds as a pandas DataFrame (needs pandas)."""
        return self.rounds.to_pandas()


class _Recorder:
    """Takes every row of a run: sums it up, writes it down, samples the series, moves the progress bar."""

    def __init__(
        self, *, folder: RunFolder | None, keep: bool, trace: bool, checkpoints: Sequence[int],
        progress: Callable[[int], None] | None,
    ) -> None:  # fmt: skip
        self.tally = Tally()
        self.series = Series()
        self._folder, self._trace, self._progress = folder, trace, progress
        self._keep = keep and folder is None
        self._rows: list[Row] = []
        self._tables: list[pa.Table] = []
        self._checkpoints = sorted(set(checkpoints), reverse=True)

    def add(self, row: Row, charged_s: float) -> None:
        self.tally.add(row, charged_s)
        if self._folder is not None:
            self._folder.add(row)
        elif self._keep:
            self._rows.append(row)
            if len(self._rows) == ROWS_PER_PART:
                self._pack()
        while self._checkpoints and row.round >= self._checkpoints[-1] and not row.declined:
            self.series.rounds.append(self._checkpoints.pop())
            self.series.mean_cost.append(self.tally.mean_cost)
            self.series.total_queue.append(row.total_queue)
        if self._progress is not None and self.tally.selections % ROWS_PER_PROGRESS == 0:
            self._progress(self.tally.selections)

    def table(self) -> pa.Table | None:
        if not self._keep:
            return None
        self._pack()
        return pa.concat_tables(self._tables)

    def _pack(self) -> None:
        self._tables.append(to_table(self._rows, trace=self._trace))
        self._rows.clear()


def simulate(
    config: Config,
    *,
    out: str | Path | None = None,
    trace: bool = False,
    records: bool = True,
    checkpoints: Sequence[int] = (),
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Runs the configuration. Records go to the folder ``out``, or stay in the result, or (``records=False``) nowhere."""
    if sentence := impossible_min_mean_samples(config):
        warnings.warn(sentence, FedtwinWarning, stacklevel=2)
    engine = Engine(config, trace=trace)
    devices = _devices_table(engine)
    folder = RunFolder(Path(out), config, devices, trace=trace) if out is not None else None
    recorder = _Recorder(folder=folder, keep=records, trace=trace, checkpoints=checkpoints, progress=progress)
    try:
        if config.run.mode == "async":
            asynchronous.run(engine, recorder.add, on_start=folder.write_start if folder else None)
        else:
            synchronous.run(engine, recorder.add)
    except BaseException:
        if folder is not None:
            folder.flush()
        raise
    summary = _summary(engine, recorder.tally)
    if folder is not None:
        folder.finish(run_summary(config, summary))
    return Result(config, summary, devices, recorder.series, folder.path if folder else None, recorder.table())


def run_summary(config: Config, summary: Summary) -> dict[str, Any]:
    """What ``summary.json`` holds: the means, and what they are the means of. No wall times: the same run, the same bytes."""
    return {
        "scheme": scheme_name(config),
        "seed": config.run.seed,
        **summary.as_dict(),
        "policy": config.policy.name,
        "mode": config.run.mode,
        "power": power_rule(config),
        "package_version": __version__,
        "config_hash": config_hash(config),
        "schema_version": SCHEMA_VERSION,
    }


def impossible_min_mean_samples(config: Config) -> str | None:
    """C1 asks for more than one selection a round can give: legal, and worth one sentence."""
    asked = config.objective.min_mean_samples
    largest = largest_min_mean_samples(config, make_fleet(config))
    if asked <= largest:
        return None
    return (
        f"objective.min_mean_samples = {asked:g} cannot be met by any policy on this fleet: "
        f"the largest value that might be is {largest:.4g}."
    )


def _summary(engine: Engine, tally: Tally) -> Summary:
    coordinator = engine.coordinator
    return tally.summary(
        virtual_time_s=engine.clock_s,
        rounds=coordinator.round,
        trained=[device.selections * device.samples.value for device in coordinator.twin.devices],
        total_queue=coordinator.total_queue_at_the_end(),
    )


def _devices_table(engine: Engine) -> pa.Table:
    distance_m, path_gain, cpu_hz_mean, samples = zip(*engine.world.fleet, strict=True)
    columns = [range(len(samples)), distance_m, path_gain, cpu_hz_mean, samples, engine.tie_ranks]
    return pa.Table.from_arrays(
        [pa.array(column, type=kind.type) for column, kind in zip(columns, DEVICES, strict=True)], schema=DEVICES
    )
