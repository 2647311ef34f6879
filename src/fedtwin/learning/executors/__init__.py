"""Where local trainings are computed. The schedule never depends on it: same decisions, clock and staleness."""

from fedtwin.learning.executors.base import Executor, Workload, make_executor, make_workload

__all__ = ["Executor", "Workload", "make_executor", "make_workload"]
