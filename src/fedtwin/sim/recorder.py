"""Where the rows of the readable engine go: into the sums, the folder or memory, the series, and to whoever listens."""

from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa

from fedtwin.records import Row, RunFolder, Tally, to_table
from fedtwin.records.folder import ROWS_PER_PART
from fedtwin.sim.callbacks import Listeners
from fedtwin.sim.series import Series, points_at, sample, series_of


class Recorder:
    """Takes every row of a run in its order. Without a folder the rows stay in memory, if there is a schema for them."""

    def __init__(
        self,
        *,
        folder: RunFolder | None,
        schema: pa.Schema | None,
        checkpoints: Sequence[int],
        progress: Callable[[int], None] | None,
        listeners: Listeners,
    ) -> None:
        self.tally = Tally()
        self.trained: Counter[int] = Counter()
        """Samples by device, of all its selections."""
        self._folder, self._schema, self._progress = folder, schema, progress
        self._rows: list[Row] = []
        self._tables: list[pa.Table] = []
        self._points = points_at(checkpoints)
        self._tell = listeners.tell_row if listeners.of_rounds else None

    def add(self, row: Row, charged_s: float) -> None:
        self.tally.add(row, charged_s)
        if not row.declined:
            self.trained[row.device] += 0 if row.dropped else row.samples
        if self._folder is not None:
            self._folder.add(row)
        elif self._schema is not None:
            self._rows.append(row)
            if len(self._rows) == ROWS_PER_PART:
                self._pack(self._schema)
        if self._points and not row.declined:
            sample(self.tally, self._points, row.round, row.total_queue)
        if self._progress is not None:
            self._progress(self.tally.selections)
        if self._tell is not None:
            self._tell(row)

    @property
    def series(self) -> Series:
        return series_of(self.tally, self._points)

    def table(self) -> pa.Table | None:
        """The rows kept in memory; None if they went to a folder or nowhere."""
        if self._schema is None or self._folder is not None:
            return None
        self._pack(self._schema)
        return pa.concat_tables(self._tables)

    def _pack(self, schema: pa.Schema) -> None:
        self._tables.append(to_table(self._rows, schema))
        self._rows.clear()
