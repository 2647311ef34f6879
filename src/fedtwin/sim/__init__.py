"""The simulator."""

from fedtwin.records.summary import run_summary
from fedtwin.sim.callbacks import Callback
from fedtwin.sim.compiled import engine_for, readable_seconds
from fedtwin.sim.result import Result
from fedtwin.sim.run import impossible_min_mean_samples, resume, simulate
from fedtwin.sim.series import Series

__all__ = [
    "Callback",
    "Result",
    "Series",
    "engine_for",
    "impossible_min_mean_samples",
    "readable_seconds",
    "resume",
    "run_summary",
    "simulate",
]
