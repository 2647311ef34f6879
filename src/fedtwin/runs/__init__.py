"""Reading runs: one way for simulations and live runs, finished or not."""

from fedtwin.runs.following import News
from fedtwin.runs.run import Moment, Run, open_run
from fedtwin.runs.twin_table import twin_table

__all__ = ["Moment", "News", "Run", "open_run", "twin_table"]
