"""Training runs on the GPUs of a Ray cluster: Ray is told of two that are not there, and the CPU trains in their place."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches import ray_gpus
from fedtwin.experiments.batches.backends import Backend, LocalBackend, open_backend
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.batches.job import Line, Packed, pack
from fedtwin.learning.executors import cuda
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.executors.cuda_one_by_one import OneByOneTrainer
from fedtwin.learning.local import Images
from tests.experiments.batches.test_gpu import training
from tests.experiments.batches.test_ray import wait_until
from tests.experiments.faults import write_faulty_policy

pytestmark = pytest.mark.slow

ON_A_NODE = ray_gpus.train_on_a_node
Before = Callable[[Path, list[str]], None]


def jobs_of_seeds(count: int, **changes: Any) -> list[Job]:
    return [Job(training(**{"run.seed": seed}, **changes)) for seed in range(count)]


class HubOnTheCpu(cuda.Hub):
    """Trains one task after the other, so that no bit depends on who shares it."""

    def __init__(self, workload: Workload, runs: int) -> None:
        images = Images(workload.data(), "cpu")
        super().__init__(OneByOneTrainer(workload.network(), images, workload.learning, "cpu", workload.code_folder), runs)


def on_the_cpu(notes: Path, before_a_line: Before) -> Callable[[Sequence[Packed]], Iterator[Line]]:
    """What a task does, with the CPU in place of its GPU. Every task leaves a note."""

    def train(group: Sequence[Packed]) -> Iterator[Line]:
        import ray

        cuda.CudaHub = HubOnTheCpu  # type: ignore[assignment,misc]
        note = {"gpus": ray.get_gpu_ids(), "visible": os.environ["CUDA_VISIBLE_DEVICES"], "keys": [one["key"] for one in group]}
        (notes / f"{os.getpid()}.new").write_text(json.dumps(note))
        (notes / f"{os.getpid()}.new").rename(notes / f"{os.getpid()}.json")
        told: list[str] = []
        for line in ON_A_NODE(group):
            before_a_line(notes, told)
            yield line
            told.append(line["key"])

    return train


def nothing(_: Path, __: list[str]) -> None: ...


def when_two_are_there(notes: Path, _: list[str]) -> None:
    """No line before two tasks have begun."""
    wait_until(lambda: len(list(notes.glob("*.json"))) == 2)


def die_once_after_the_first_line(notes: Path, told: list[str]) -> None:
    if told and not (notes / "died").exists():
        wait_until(lambda: told[0] in (notes / "journal.jsonl").read_text())
        (notes / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster that believes in two GPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 2})
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def opened(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Backend]]:
    """Opens a backend on that cluster; its tasks train on the CPU and leave notes in the folder ``tmp_path``."""
    contexts = []

    def open_with(before_a_line: Before = nothing) -> Backend:
        monkeypatch.setattr(ray_gpus, "train_on_a_node", on_the_cpu(tmp_path, before_a_line))
        contexts.append(open_backend(ray=cluster))
        return contexts[-1].__enter__()

    yield open_with
    for context in contexts:
        context.__exit__(None, None, None)


def notes_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def test_groups_train_at_the_same_time_on_gpus_of_their_own_and_change_no_byte(
    opened: Callable[..., Backend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [*jobs_of_seeds(3), Job(training(**{"learning.average": "none", "learning.mixing": 0.9}))]
    on_ray = run_batch(jobs, backend=opened(when_two_are_there), journal=tmp_path / "ray.jsonl")
    notes = notes_in(tmp_path)
    assert sorted(note["visible"] for note in notes) == ["0", "1"] and sorted(note["gpus"] for note in notes) == [[0], [1]]
    assert [len(note["keys"]) for note in notes] == [2, 2], "several runs share one"
    monkeypatch.setattr(cuda, "CudaHub", HubOnTheCpu)
    assert run_batch(jobs, backend=LocalBackend(1), journal=tmp_path / "here.jsonl") == on_ray
    ray_lines, lines = (sorted((tmp_path / name).read_bytes().splitlines()) for name in ("ray.jsonl", "here.jsonl"))
    assert ray_lines == lines and len(lines) == len(jobs)


def test_runs_that_train_otherwise_are_in_groups_of_their_own(opened: Callable[..., Backend], tmp_path: Path) -> None:
    some, others = jobs_of_seeds(2), jobs_of_seeds(2, **{"learning.learning_rate": 0.01})
    run_batch([*some, *others], backend=opened())
    groups = {frozenset(note["keys"]) for note in notes_in(tmp_path)}
    assert groups == {frozenset(job.key for job in jobs) for jobs in (some, others)}


def test_a_group_that_is_killed_is_done_again_without_what_it_has_told(opened: Callable[..., Backend], tmp_path: Path) -> None:
    jobs = jobs_of_seeds(6)
    outcomes = run_batch(jobs, backend=opened(die_once_after_the_first_line), journal=tmp_path / "journal.jsonl")
    assert [outcome.summary["seed"] for outcome in outcomes] == list(range(6)) and (tmp_path / "died").exists()
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 6
    assert sorted(len(note["keys"]) for note in notes_in(tmp_path)) in ([2, 3, 3], [2, 2, 3, 3])


def test_a_run_that_kills_its_group_is_the_only_one_that_fails(opened: Callable[..., Backend], tmp_path: Path) -> None:
    policy = write_faulty_policy(tmp_path, "os._exit(1)")
    jobs = jobs_of_seeds(4, **{"policy.name": policy, "code.folder": str(tmp_path)})
    outcomes = run_batch(jobs, backend=opened(), keep_failures=True)
    assert [outcome.ran for outcome in outcomes] == [True, False, True, True]
    assert "Its worker process was killed" in str(outcomes[1].failed)


def test_who_stops_reading_ends_the_groups_under_way(opened: Callable[..., Backend]) -> None:
    import ray

    backend = opened()
    lines = backend.train_on_gpus([*jobs_of_seeds(1), *jobs_of_seeds(3, **{"run.rounds": 10**6})])
    assert "summary" in next(lines)[0] and ray.available_resources().get("GPU", 0.0) == 0.0
    lines.close()
    wait_until(lambda: ray.available_resources().get("GPU", 0.0) == 2.0, seconds=30.0)


def test_none_begins_that_is_too_late(opened: Callable[..., Backend], tmp_path: Path) -> None:
    assert list(opened().train_on_gpus(jobs_of_seeds(2), time.time() - 1.0)) == [] and len(notes_in(tmp_path)) == 2


def test_errors_of_a_node_come_back_as_they_are(opened: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_gpus, "pack", lambda job, until_s: {**pack(job, until_s), "key": "of another version"})
    with pytest.raises(FedtwinError, match="another version of fedtwin"):
        run_batch(jobs_of_seeds(1), backend=opened())
