"""Reading runs: one way for simulations and live runs, finished or not."""

from fedtwin.runs.following import News
from fedtwin.runs.run import Run, open_run

__all__ = ["News", "Run", "open_run"]
