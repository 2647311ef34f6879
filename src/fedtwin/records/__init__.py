"""Records: rows, their schema, the run folder, the summary."""

from fedtwin.records.folder import RunFolder
from fedtwin.records.reading import read_summary
from fedtwin.records.schema import DEVICES, EVALUATIONS, REFUSALS, SCHEMA_VERSION, Row, rounds_schema, to_table
from fedtwin.records.summary import Summary, Tally
from fedtwin.records.tables import read_rounds

__all__ = [
    "DEVICES",
    "EVALUATIONS",
    "REFUSALS",
    "SCHEMA_VERSION",
    "Row",
    "RunFolder",
    "Summary",
    "Tally",
    "read_rounds",
    "read_summary",
    "rounds_schema",
    "to_table",
]
