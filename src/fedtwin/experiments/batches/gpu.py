"""Training runs on one GPU, many at a time: each run is a thread, and all that is due is trained as one batch."""

import sys
import warnings
from collections.abc import Generator, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from fedtwin.config import Config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.batches.job import Job, Line, line_of, line_of_failure, reason_of, too_late
from fedtwin.sim import Result, simulate

if TYPE_CHECKING:
    from fedtwin.learning.executors import Workload

MOST_RUNS_AT_ONCE = 30
TURN_S = 0.0005
WHOSE_SAMPLES = ("partition", "dirichlet_gamma", "owned_samples")
WHAT_BECOMES_OF_AN_UPLOAD = (
    *("aggregation", "aggregation_settings", "mixing", "staleness", "staleness_exponent", "hinge_a", "hinge_b", "buffer_size"),
    *("average", "average_half_life", "most_refusals", "compress", "top_k", "error_feedback"),
)
WHAT_IS_MEASURED = ("evaluate_every_s", "record_gradient")
NOT_OF_A_TRAINING = frozenset((*WHOSE_SAMPLES, *WHAT_BECOMES_OF_AN_UPLOAD, *WHAT_IS_MEASURED))
"""Settings that local training does not know: runs that differ in no others of ``[learning]`` share the GPU."""
HOW_FAST = frozenset(("learning_rate", "rate_rounds"))
"""Settings that every lesson says for itself where the rate changes over the run; a constant rate is in the recorded step."""


def lines_on_gpu(jobs: Sequence[Job], until_s: float | None = None) -> Generator[Line, None, None]:
    """``simulate_on_gpu`` of jobs: the line of every run as soon as it ends, also of one that fails."""
    with closing(simulate_on_gpu([job.config for job in jobs], until_s=until_s)) as results:
        for place, result in results:
            job = jobs[place]
            if isinstance(result, BaseException):
                yield line_of_failure(job.key, reason_of(result))
            else:
                yield line_of(job.key, job.config, result, result.identity)
            del result  # an error holds what lay on the GPU, where the next group is about to be


def simulate_on_gpu(
    configs: Sequence[Config], most: int = MOST_RUNS_AT_ONCE, until_s: float | None = None
) -> Generator[tuple[int, Result | BaseException], None, None]:
    """Every configuration with ``learning.executor = "cuda"``, as (its place, its result or error), in the order they end.

    Runs that train the same network on the same data in the same way share the GPU, whatever becomes of their uploads; the
    others take turns. After ``until_s`` no more begin. Who stops reading ends those that are under way.
    """
    for places in cut_groups(configs, most):
        if too_late(until_s):
            return
        yield from _together(configs, places)


def cut_groups(configs: Sequence[Config], most: int = MOST_RUNS_AT_ONCE) -> list[list[int]]:
    """The places of those that share a GPU, no more than ``most`` together, in groups of about the same size."""
    cut = []
    for places in groups_of(configs):
        count = -(-len(places) // most)
        edges = [len(places) * group // count for group in range(count + 1)]
        cut += [places[first:last] for first, last in pairwise(edges)]
    return cut


def groups_of(configs: Sequence[Config]) -> list[list[int]]:
    """The places of those that train in the same way, by the same code."""
    groups: dict[Hashable, list[int]] = {}
    for place, config in enumerate(configs):
        if config.learning is None:
            raise FedtwinError("Only training runs go to the GPU: the configuration has no [learning] section.")
        others = NOT_OF_A_TRAINING if config.learning.rate_schedule == "constant" else NOT_OF_A_TRAINING | HOW_FAST
        code_in = config.code.folder if config.learning.own_code else None
        groups.setdefault((code_in, config.learning.model_dump_json(exclude=set(others))), []).append(place)
    return list(groups.values())


def _together(configs: Sequence[Config], places: Sequence[int]) -> Iterator[tuple[int, Result | BaseException]]:
    from fedtwin.learning.executors.cuda import CudaHub, without_frames

    try:
        hub = CudaHub(_workload(configs[places[0]]), len(places))
    except Exception as error:
        yield from ((place, error) for place in places)
        return
    executors = [hub.executor() for _ in places]

    def run(place: int, k: int) -> Result:
        try:
            return simulate(configs[place], records=False, executor=executors[k])
        finally:
            executors[k].close()

    try:
        with warnings.catch_warnings(), _quick_turns(), ThreadPoolExecutor(len(places)) as threads:
            warnings.simplefilter("ignore", FedtwinWarning)
            try:
                futures = {threads.submit(run, place, k): place for k, place in enumerate(places)}
                for future in as_completed(futures):
                    failure = future.exception()
                    if isinstance(failure, FedtwinError):  # of others the frames say where the user's code failed
                        without_frames(failure)
                    yield futures[future], future.result() if failure is None else failure
                    del failure
            finally:
                hub.stop()
    finally:
        hub.join()


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Whoever gives the GPU its next batch must not wait behind the schedules of all runs, five milliseconds for each."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _workload(config: Config) -> "Workload":
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.executors import make_workload

    assert config.learning is not None
    data = load_dataset(config.learning.dataset, config.learning)
    return make_workload(config, data.shape, data.outputs)
