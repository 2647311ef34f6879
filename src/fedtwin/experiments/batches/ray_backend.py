"""The runs of a batch on a Ray cluster (extra ``ray``). A chunk whose node dies is done again on another.

A chunk that dies wherever it is done is taken apart: only the run that dies alone too has failed.
"""

import logging
import os
import socket
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.backends import CHUNK_S, default_workers, in_chunks
from fedtwin.experiments.batches.job import Done, Job, Line, Packed, line_of_failure, run_chunk, weight
from fedtwin.experiments.batches.pools import KILLED
from fedtwin.experiments.batches.ray_gpus import GpusOfRay, first_sentence, unpack_on_a_node
from fedtwin.processes import interrupts_left_to_the_parent

LOCAL = "local"
CLIENT = "ray://"
ANSWER_WITHIN_S = 5.0
TRIES_AFTER_A_DEATH = 10


class RayBackend:
    """The cluster at ``address`` (``auto``, ``host:port``), or one started for this command (``local``).

    ``workers`` limits how many of its cores are used, and of its GPUs.
    """

    def __init__(self, address: str, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise FedtwinError(f"--ray {address} needs Ray: pip install 'fedtwin[ray]'.") from None
        self._ray, self._address, self._workers = ray, address, workers
        _keep_standard_output_clean()
        self._connect()
        self._task = ray.remote(num_cpus=1, max_retries=TRIES_AFTER_A_DEATH)(run_chunk_on_a_node)
        self._chunks: dict[Any, Sequence[Packed]] = {}
        self._suspects: list[Packed] = []
        self._gpus = GpusOfRay(ray, workers)

    def run(self, runs: Sequence[Packed]) -> Iterator[list[Line]]:
        self._suspects = []
        yield from in_chunks(runs, self._cores, self._submit, self._collect)
        yield from in_chunks(self._suspects, self._cores, self._submit, self._collect, most=1)

    def train_on_gpus(self, jobs: Sequence[Job], until_s: float | None = None) -> Generator[list[Line], None, None]:
        yield from self._gpus.train(jobs, until_s)

    def require_gpus(self) -> None:
        if self._address.startswith(CLIENT):
            raise FedtwinError(
                f"--ray {self._address} is Ray's client, which cannot follow runs on a GPU: start the command on a node of the "
                "cluster, with --ray auto."
            )
        self._gpus.require_some()

    def close(self) -> None:
        self._ray.shutdown()

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        try:
            if self._address == LOCAL:
                with interrupts_left_to_the_parent():
                    self._ray.init(LOCAL, num_cpus=self._workers or default_workers(), include_dashboard=False, **quiet)
            else:
                _require_an_answer(self._address)
                self._ray.init(self._address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise FedtwinError(f"--ray {self._address} cannot be reached: {first_sentence(error)}.") from None
        except BaseException:
            self.close()
            raise

    def _cores(self) -> int:
        cores = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return min(cores, self._workers or cores)

    def _submit(self, chunk: Sequence[Packed]) -> Any:
        ticket = self._task.remote(list(chunk))
        self._chunks[ticket] = chunk
        return ticket

    def _collect(self, flying: set[Any]) -> tuple[list[Done], set[Any]]:
        self._ray.wait(list(flying))
        finished, others = self._ray.wait(list(flying), num_returns=len(flying), timeout=0)
        return [done for ticket in finished if (done := self._done(ticket)) is not None], set(others)

    def _done(self, ticket: Any) -> Done | None:
        """What came of a chunk; nothing where it died with several runs, which are suspects then."""
        from ray.exceptions import RayError, RayTaskError

        chunk = self._chunks.pop(ticket)
        try:
            done: Done = self._ray.get(ticket)
            return done
        except RayTaskError as error:
            if isinstance(error.cause, FedtwinError):
                raise error.cause from None
            raise
        except RayError as error:
            if len(chunk) > 1:
                self._suspects += chunk
                return None
            line = line_of_failure(chunk[0]["key"], f"{KILLED} ({first_sentence(error)}).")
            return [line], CHUNK_S / max(1, weight(chunk[0]))


def run_chunk_on_a_node(chunk: Sequence[Packed]) -> Done:
    """Does the runs if this node would do the same as the machine that asks."""
    unpack_on_a_node(chunk)
    return run_chunk(chunk)


def _require_an_answer(address: str) -> None:
    """Ray itself waits for minutes where nobody answers."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S).close()


def _keep_standard_output_clean() -> None:
    """Ray prints the last words of a dying node to standard output, where the answer of a command goes, and has no switch."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None
