"""The runs of a batch on a Ray cluster (extra ``ray``). A chunk whose node dies is done again on another."""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.experiments.backends import Done, default_workers, in_chunks
from fedtwin.experiments.job import Line, Packed, run_chunk, unpack

TRIES_AFTER_A_DEATH = 10
LOCAL = "local"


class RayBackend:
    """The cluster at ``address`` (``auto``, ``host:port``), or one started for this command (``local``).

    It is connected to when the first run is due. ``workers`` limits how many cores of it are used.
    """

    here = False

    def __init__(self, address: str, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise FedtwinError(f"--ray {address} needs Ray: pip install 'fedtwin[ray]'.") from None
        self._ray, self._address, self._workers = ray, address, workers
        self._task: Any = None

    def run(self, runs: Sequence[Packed]) -> Iterator[list[Line]]:
        if not runs:
            return
        if self._task is None:
            self._connect()
        yield from in_chunks(runs, self._cores, lambda chunk: self._task.remote(list(chunk)), self._collect)

    def close(self) -> None:
        if self._task is not None:
            self._task = None
            self._ray.shutdown()

    def _connect(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        try:
            if self._address == LOCAL:
                self._ray.init(LOCAL, num_cpus=self._workers or default_workers(), include_dashboard=False, **quiet)
            else:
                self._ray.init(self._address, **quiet)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise FedtwinError(f"--ray {self._address} cannot be reached: {reason}.") from None
        self._task = self._ray.remote(num_cpus=1, max_retries=TRIES_AFTER_A_DEATH)(run_chunk_on_a_node)

    def _cores(self) -> int:
        cores = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return min(cores, self._workers or cores)

    def _collect(self, flying: set[Any]) -> tuple[list[Done], set[Any]]:
        from ray.exceptions import RayError, RayTaskError

        finished, others = self._ray.wait(list(flying))
        try:
            return self._ray.get(finished), set(others)
        except RayTaskError as error:
            if isinstance(error.cause, FedtwinError):
                raise error.cause from None
            raise
        except RayError as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise FedtwinError(f"--ray {self._address} lost runs for good: {reason}.") from None


def run_chunk_on_a_node(chunk: Sequence[Packed]) -> Done:
    """Does the runs if this node would do the same as the machine that asks: its fedtwin, and the files a run names."""
    for packed in chunk:
        if unpack(packed).key != packed["key"]:
            raise FedtwinError(
                "A node of the Ray cluster has another fedtwin, or another content of the fleet, data or policy files that "
                "the settings name: make them the same as here."
            )
    return run_chunk(chunk)
