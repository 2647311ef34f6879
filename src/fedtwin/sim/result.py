"""What a run leaves: its summary, its series, its records."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.config import Config, Identity
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records import DEVICES, Summary, read_rounds
from fedtwin.world.fleet import FleetColumns


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
    evaluations: list[Evaluation]
    folder: Path | None
    identity: Identity
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


def devices_table(fleet: FleetColumns, tie_ranks: NDArray[np.int64]) -> pa.Table:
    """The fleet as it is written to ``devices.parquet``; ``name`` only where the devices have names."""
    columns = [np.arange(len(tie_ranks)), *fleet.numbers, tie_ranks]
    table = pa.Table.from_arrays(
        [pa.array(column, type=kind.type) for column, kind in zip(columns, DEVICES, strict=True)], schema=DEVICES
    )
    return table if fleet.names is None else table.append_column("name", pa.array(fleet.names, type=pa.string()))
