"""Training runs on one GPU, many at a time: each run is a thread, and all that is due is trained as one batch."""

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from fedtwin.config import Config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.sim import Result, simulate

if TYPE_CHECKING:
    from fedtwin.learning.executors import Workload

MOST_RUNS_AT_ONCE = 30


def simulate_on_gpu(configs: Sequence[Config], most: int = MOST_RUNS_AT_ONCE) -> Iterator[tuple[int, Result | BaseException]]:
    """Every configuration with ``learning.executor = "cuda"``, as (its place, its result or error), in the order they end.

    Runs that train the same network on the same data in the same way share the GPU; the others take turns.
    """
    groups: dict[str, list[int]] = {}
    for place, config in enumerate(configs):
        if config.learning is None:
            raise FedtwinError("Only training runs go to the GPU: the configuration has no [learning] section.")
        shared = config.learning.model_dump_json(exclude={"partition", "dirichlet_gamma", "owned_samples", "evaluate_every_s"})
        groups.setdefault(shared, []).append(place)
    for places in groups.values():
        for first in range(0, len(places), most):
            yield from _together(configs, places[first : first + most])


def _together(configs: Sequence[Config], places: Sequence[int]) -> Iterator[tuple[int, Result | BaseException]]:
    from fedtwin.learning.executors.cuda import CudaHub

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

    with warnings.catch_warnings(), ThreadPoolExecutor(len(places)) as threads:
        warnings.simplefilter("ignore", FedtwinWarning)
        futures = {threads.submit(run, place, k): place for k, place in enumerate(places)}
        for future in as_completed(futures):
            yield futures[future], future.exception() or future.result()


def _workload(config: Config) -> "Workload":
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.executors import make_workload

    assert config.learning is not None
    data = load_dataset(config.learning.dataset)
    return make_workload(config, data.image_shape, data.classes)
