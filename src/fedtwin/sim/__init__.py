"""The simulator."""

from fedtwin.sim.simulate import Result, Series, run_summary, simulate

__all__ = ["Result", "Series", "run_summary", "simulate"]
