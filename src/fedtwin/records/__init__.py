"""Records: rows, their schema, the run folder, the summary."""

from fedtwin.records.folder import RunFolder, read_rounds, read_summary
from fedtwin.records.schema import DEVICES, SCHEMA_VERSION, Row, to_table
from fedtwin.records.summary import Summary, Tally

__all__ = [
    "DEVICES",
    "SCHEMA_VERSION",
    "Row",
    "RunFolder",
    "Summary",
    "Tally",
    "read_rounds",
    "read_summary",
    "to_table",
]
