"""Training runs that share a GPU, here with the CPU in its place: what becomes of an upload is no affair of the GPU."""

import json
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, LearningConfig, load_config
from fedtwin.errors import FedtwinError, NotFinishedError
from fedtwin.experiments.batches.allowance import Allowance
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.batches.gpu import HOW_FAST, NOT_OF_A_TRAINING, cut_groups, groups_of, simulate_on_gpu
from fedtwin.experiments.batches.ray_gpus import GpusOfRay
from fedtwin.learning.executors import cuda
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.sim import Result

OTHER_AGGREGATIONS: list[dict[str, Any]] = [
    {},
    {"run.seed": 7, "learning.average": "none"},
    {"learning.average_half_life": 5.0, "learning.mixing": 0.9, "learning.staleness": "constant"},
    {"learning.aggregation": "fedbuff", "learning.buffer_size": 3},
    {"learning.aggregation": "window", "learning.aggregation_settings": {"size": 4}},
    {"run.mode": "sync"},
]


def training(**changes: Any) -> Config:
    base = {"learning.executor": "cuda", "learning.model": "linear", "run.rounds": 12, "fleet.devices": 4, "fleet.channels": 2}
    return load_config(overrides={**base, **changes})


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs share each hub that is made."""
    found: list[int] = []

    class HubOnTheCpu(cuda.Hub):
        def __init__(self, workload: Workload, runs: int) -> None:
            found.append(runs)
            super().__init__(make_trainer(workload, "float32", "cpu"), runs)

    monkeypatch.setattr(cuda, "CudaHub", HubOnTheCpu)
    return found


def test_who_stops_reading_ends_the_runs_under_way(shared: list[int]) -> None:
    configs = [training(**{"run.rounds": rounds}) for rounds in (12, 10**6, 10**6)]
    results = simulate_on_gpu(configs)
    place, first = next(results)
    assert place == 0 and isinstance(first, Result)
    results.close()
    assert shared == [3] and not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


def test_none_begins_that_is_too_late(shared: list[int]) -> None:
    assert list(simulate_on_gpu([training(), training()], until_s=time.time() - 1.0)) == [] == shared


def test_a_batch_in_parts_does_whole_seeds_first_and_goes_on_elsewhere(shared: list[int], tmp_path: Path) -> None:
    jobs = [Job(training(**{"policy.name": name, "run.seed": seed})) for name in ("CU-UCB", "Random") for seed in range(2)]
    with pytest.raises(NotFinishedError, match=r"^2 of 4 runs"):
        run_batch(jobs, journal=tmp_path / "one.jsonl", allowance=Allowance(runs=2))
    shutil.copy(tmp_path / "one.jsonl", tmp_path / "two.jsonl")
    outcomes = run_batch(jobs, journal=tmp_path / "two.jsonl")
    assert shared == [2, 2] and [outcome.summary["seed"] for outcome in outcomes] == [0, 1, 0, 1]
    lines = [json.loads(line)["summary"]["seed"] for line in (tmp_path / "two.jsonl").read_text().splitlines()]
    assert lines == [0, 0, 1, 1]


def require_what_each_is_alone(configs: list[Config], together: dict[int, Any]) -> None:
    for place, config in enumerate(configs):
        ((_, alone),) = simulate_on_gpu([config])
        found = together[place]
        assert isinstance(found, Result) and isinstance(alone, Result), found
        for name, values in alone.weights.items():
            np.testing.assert_allclose(found.weights[name], values, rtol=1e-4, atol=1e-5)


def test_runs_that_differ_only_in_what_becomes_of_an_upload_share_it(shared: list[int]) -> None:
    configs = [training(**changes) for changes in OTHER_AGGREGATIONS]
    together = dict(simulate_on_gpu(configs))
    assert shared == [len(configs)]
    require_what_each_is_alone(configs, together)
    assert shared == [len(configs)] + [1] * len(configs)


def test_runs_that_train_otherwise_do_not() -> None:
    others: list[dict[str, Any]] = [
        {},
        {"learning.learning_rate": 0.1},
        {"learning.batch_size": 8},
        {"learning.optimiser": "adam"},
    ]
    assert groups_of([training(**changes) for changes in others * 2]) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert set(LearningConfig.model_fields) > NOT_OF_A_TRAINING | HOW_FAST


def test_runs_of_other_code_do_not_though_its_name_is_the_same() -> None:
    places = [{"code.folder": folder} for folder in ("v1", "v2", "v1")]
    own = [training(**{**place, "learning.loss": "net:loss"}) for place in places]
    assert groups_of(own) == [[0, 2], [1]]
    assert groups_of([training(**place) for place in places]) == [[0, 1, 2]], "fedtwin's own code lies in no folder"


def test_runs_of_other_rates_share_it_where_no_recorded_step_has_one(shared: list[int]) -> None:
    falling = [{"learning.rate_schedule": "cosine", "learning.learning_rate": rate} for rate in (0.1, 0.02)]
    warmed = [{"learning.rate_warmup_rounds": 3, "learning.learning_rate": rate} for rate in (0.1, 0.02)]
    configs = [training(**changes) for changes in falling]
    assert groups_of([*configs, *(training(**changes) for changes in warmed)]) == [[0, 1], [2], [3]]
    together = dict(simulate_on_gpu(configs))
    assert shared == [2]
    require_what_each_is_alone(configs, together)


def test_no_more_share_it_than_may_at_once() -> None:
    configs = [training(**{"run.seed": seed, "learning.learning_rate": 0.1 * (1 + seed % 2)}) for seed in range(7)]
    assert cut_groups(configs, most=3) == [[0, 2], [4, 6], [1, 3, 5]]


def test_a_ray_cluster_without_gpus_is_one_sentence() -> None:
    ray = SimpleNamespace(remote=lambda **_: lambda task: task, cluster_resources=lambda: {"CPU": 4.0})
    gpus = GpusOfRay(ray)
    with pytest.raises(FedtwinError, match=r"^learning.executor = 'cuda' needs a GPU, and the Ray cluster has none: "):
        gpus.require_some()
    with pytest.raises(FedtwinError, match="has none"):
        next(gpus.train([Job(training())]))


def test_a_ray_cluster_that_has_lost_its_last_gpu_is_not_waited_for() -> None:
    gpus_there = iter([2.0, 2.0, 0.0])
    ray = SimpleNamespace(remote=lambda **_: lambda task: task, cluster_resources=lambda: {"GPU": next(gpus_there)})
    with pytest.raises(FedtwinError, match="has lost its last GPU: the same command goes on"):
        next(GpusOfRay(ray).train([Job(training())]))
