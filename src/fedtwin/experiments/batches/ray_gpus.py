"""Training runs on the GPUs of a Ray cluster: a group of runs per GPU, which share it as they do on one machine.

A group is one task that asks for a GPU and gives a line for every run as soon as it ends. Where it dies, the runs it has not
told of are done again: together, on whichever GPU is free, and then each alone. Who dies alone too has failed.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.gpu import MOST_RUNS_AT_ONCE, cut_groups, lines_on_gpu
from fedtwin.experiments.batches.job import Job, Line, Packed, line_of_failure, pack, unpack
from fedtwin.experiments.batches.pools import KILLED

MOST_DEATHS = 3
LOOK_AGAIN_S = 10.0


class Group(NamedTuple):
    """Runs that share a GPU, by key, and how many tasks have died of them so far."""

    runs: dict[str, Packed]
    deaths: int = 0


class GpusOfRay:
    """The GPUs of the cluster that ``ray`` is connected to, or the first ``limit`` of them that are free."""

    def __init__(self, ray: Any, limit: int | None = None) -> None:
        self._ray, self._limit = ray, limit
        # Ray ends the process of a task that had a GPU: none sees that of another. Retries of its own would tell lines twice.
        self._task = ray.remote(num_cpus=1, num_gpus=1, max_retries=0, num_returns="streaming")(train_on_a_node)
        self._waiting: deque[Group] = deque()
        self._flying: dict[Any, Group] = {}

    def require_some(self) -> None:
        if self._count() == 0:
            raise FedtwinError(
                "learning.executor = 'cuda' needs a GPU, and the Ray cluster has none: add a node with one, or leave --ray out."
            )

    def train(self, jobs: Sequence[Job], until_s: float | None = None) -> Generator[list[Line], None, None]:
        """The line of every run as soon as it ends, on all GPUs where there are enough runs. None begins after ``until_s``."""
        self.require_some()
        most = min(MOST_RUNS_AT_ONCE, -(-len(jobs) // self._count()))
        groups = [[jobs[place] for place in places] for places in cut_groups([job.config for job in jobs], most)]
        self._waiting = deque(Group({job.key: pack(job, until_s) for job in group}) for group in groups)
        try:
            while self._waiting or self._flying:
                self._submit()
                ready, _ = self._ray.wait(list(self._flying), timeout=LOOK_AGAIN_S)
                for stream in ready:
                    yield from self._next_of(stream)
        finally:
            for stream in self._flying:
                self._ray.cancel(stream, force=True)
            self._flying.clear()

    def _count(self) -> int:
        gpus = int(self._ray.cluster_resources().get("GPU", 0))
        return min(gpus, self._limit or gpus)

    def _submit(self) -> None:
        """A group for every GPU; those of nodes that have joined are used too, and those that are lost are not waited for."""
        gpus = self._count()
        if gpus == 0:
            raise FedtwinError("The Ray cluster has lost its last GPU: the same command goes on once it has one again.")
        while self._waiting and len(self._flying) < gpus:
            group = self._waiting.popleft()
            self._flying[self._task.remote(list(group.runs.values()))] = group

    def _next_of(self, stream: Any) -> Iterator[list[Line]]:
        from ray.exceptions import RayError, RayTaskError

        group = self._flying[stream]
        try:
            line: Line = self._ray.get(next(stream))
        except StopIteration:  # runs that are left were too late to begin
            del self._flying[stream]
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, FedtwinError) else error) from None
        except RayError as error:
            del self._flying[stream]
            yield from self._after_a_death(group, error)
        else:
            del group.runs[line["key"]]
            yield [line]

    def _after_a_death(self, group: Group, error: Exception) -> Iterator[list[Line]]:
        if group.deaths + 1 < MOST_DEATHS:
            self._waiting.append(Group(group.runs, group.deaths + 1))
        elif len(group.runs) > 1:
            self._waiting.extend(Group({key: packed}) for key, packed in group.runs.items())
        else:
            yield [line_of_failure(key, f"{KILLED} ({first_sentence(error)}).") for key in group.runs]


def train_on_a_node(group: Sequence[Packed]) -> Iterator[Line]:
    """What a task does: the runs on the GPU that Ray has given it, if this node would do the same as the machine that asks."""
    yield from lines_on_gpu(unpack_on_a_node(group), group[0]["until_s"])


def unpack_on_a_node(runs: Sequence[Packed]) -> list[Job]:
    """The runs, if this node has the same fedtwin, and the same files that they name."""
    jobs = [unpack(packed) for packed in runs]
    if any(job.key != packed["key"] for job, packed in zip(jobs, runs, strict=True)):
        raise FedtwinError(
            "A node of the Ray cluster has another version of fedtwin, or other contents of a fleet, data or policy "
            "file that the settings name: make them the same as here."
        )
    return jobs


def first_sentence(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0].rstrip(".")
