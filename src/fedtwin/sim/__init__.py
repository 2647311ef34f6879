"""The simulator."""

from fedtwin.sim.run import Result, Series, impossible_min_mean_samples, resume, run_summary, simulate

__all__ = ["Result", "Series", "impossible_min_mean_samples", "resume", "run_summary", "simulate"]
