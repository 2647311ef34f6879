"""What a run leaves: its summary, its series, its records."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.config import Config, Identity
from fedtwin.errors import FedtwinError
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records import DEVICES, EVALUATIONS, Summary, read_rounds
from fedtwin.records.arrays import array_of, table_of, table_of_columns
from fedtwin.sim.series import Series
from fedtwin.world.fleet import FleetColumns

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """One finished run.

    ``config``: the configuration it ran with. ``summary``: its means, of which ``summary.as_dict()`` is a dictionary.
    ``devices``: the fleet as an Arrow table. ``series``: mean cost and total queue at the rounds asked for by ``checkpoints``.
    ``evaluations``: the model on the test set, empty where none is trained. ``folder``: where its records are, if they were
    written. ``identity``: the hash that names the configuration, and the digests of the user's code in it. ``weights``: the
    trained model as NumPy arrays by the names of its tensors, empty where none is trained.
    """

    config: Config
    summary: Summary
    devices: pa.Table
    series: Series
    evaluations: list[Evaluation]
    folder: Path | None
    identity: Identity
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    _rounds: pa.Table | None = None

    @property
    def rounds(self) -> pa.Table:
        """One row per decision, as an Arrow table (docs/records.md); read from the run's folder if there is one."""
        if self.folder is not None:
            return read_rounds(self.folder)
        if self._rounds is None:
            raise ValueError("this run kept no records: call simulate(config, records=True)")
        return self._rounds

    def to_pandas(self, table: Literal["rounds", "devices", "evaluations"] = "rounds") -> "pd.DataFrame":
        """The rounds, the devices or the evaluations as a pandas DataFrame (needs pandas)."""
        tables = {"rounds": lambda: self.rounds, "devices": lambda: self.devices, "evaluations": self._evaluations}
        if table not in tables:
            raise FedtwinError(f"table = {table!r} is unknown: choose one of {', '.join(tables)}.")
        try:
            return tables[table]().to_pandas()
        except ImportError as error:
            raise FedtwinError(f"to_pandas() needs pandas ({error}): pip install pandas.") from None

    def _evaluations(self) -> pa.Table:
        return table_of(self.evaluations, EVALUATIONS)


def devices_table(fleet: FleetColumns, tie_ranks: NDArray[np.int64]) -> pa.Table:
    """The fleet as it is written to ``devices.parquet``; ``name`` only where the devices have names."""
    table = table_of_columns([np.arange(len(tie_ranks)), *fleet.numbers, tie_ranks], DEVICES)
    return table if fleet.names is None else table.append_column("name", array_of(fleet.names, pa.string()))
