"""The devices of a run folder."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from fedtwin.config import Config
from fedtwin.formulas.terms import Quantities, terms_of
from fedtwin.records import DEVICES
from fedtwin.records.arrays import array_of
from fedtwin.records.files import DEVICES_NAME
from fedtwin.records.tables import read_table, require_columns


def read_devices(folder: Path, config: Config, *, finished: bool) -> pa.Table:
    """``devices.parquet``. One that was written before devices had quantities of their own gets the configured ones."""
    terms = terms_of(config)
    configured = {name: getattr(terms, name) for name in Quantities._fields} | {"samples_spread": 0.0}
    table = read_table(
        folder, DEVICES_NAME, pa.schema([one for one in DEVICES if one.name not in configured]), finished=finished
    )
    for place, field in enumerate(DEVICES):
        if field.name not in table.column_names and field.name in configured:
            column = array_of(np.full(table.num_rows, configured[field.name]), field.type)
            table = table.add_column(place, field, column)
    require_columns(table, DEVICES, folder / DEVICES_NAME)
    return table
