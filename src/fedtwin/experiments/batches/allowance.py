"""How much of a batch one call may do: the rest is left for the next one, which goes on from the journal."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.job import Job


@dataclass
class Allowance:
    """For all batches of a call together: no run begins after ``minutes``, and no more than ``runs`` of them at all.

    Runs that have begun come to their end.
    """

    minutes: float | None = None
    runs: int | None = None
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = time.time()
        if self.minutes is not None and not (_is_number(self.minutes) and 0.0 < self.minutes < float("inf")):
            raise FedtwinError(f"minutes = {self.minutes!r} is not allowed: it must be a number above 0.")
        if self.runs is not None and (type(self.runs) is not int or self.runs < 1):
            raise FedtwinError(f"runs = {self.runs!r} is not allowed: it must be a whole number from 1 on.")

    @property
    def limits(self) -> bool:
        return self.minutes is not None or self.runs is not None

    @property
    def until_s(self) -> float | None:
        """On the clock of the system, so that a worker process can read it."""
        return None if self.minutes is None else self._began_s + 60.0 * self.minutes

    def taken(self, jobs: Sequence[Job]) -> list[Job]:
        """Those of the jobs that this call may do."""
        if self.runs is None:
            return list(jobs)
        some = list(jobs[: self.runs])
        self.runs -= len(some)
        return some


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
