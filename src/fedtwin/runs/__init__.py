"""Reading runs: one way for simulations and live runs, finished or not."""

from fedtwin.runs.run import Run, open_run

__all__ = ["Run", "open_run"]
