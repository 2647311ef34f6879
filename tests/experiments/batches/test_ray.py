"""Batches on real Ray clusters of this machine."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.batch import Job, open_backend, run_batch
from fedtwin.experiments.batches.job import pack
from fedtwin.experiments.batches.ray_backend import run_chunk_on_a_node
from tests.conftest import FEDTWIN, hears_interrupts, run_cli, write_slow_policy
from tests.experiments.faults import write_faulty_policy

pytest.importorskip("ray", reason="Ray is an extra, which `make test-all` installs")
pytestmark = pytest.mark.slow

SPEC = 'schemes = ["slow:POLICY"]\nseeds = 24\nrounds = 40\n[grid]\n"fleet.channels" = [5, 15]\n'
RUNS = 48


@pytest.fixture
def two_nodes() -> Iterator[tuple[Any, Any]]:
    """A cluster of two nodes with one core each, and the second of them."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


def write_spec(folder: Path) -> None:
    write_slow_policy(folder)
    (folder / "spec.toml").write_text(SPEC, encoding="utf-8")


def wait_until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*FEDTWIN, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_interrupts,
    )


def finished(journal: Path) -> int:
    return len(journal.read_text().splitlines()) if journal.exists() else 0


def test_a_node_that_is_killed_midway_changes_no_byte(tmp_path: Path, two_nodes: tuple[Any, Any]) -> None:
    import ray

    cluster, second = two_nodes
    write_spec(tmp_path)
    process = start(tmp_path, "sweep", "spec.toml", "--out", "ray", "--ray", cluster.address)
    journal = tmp_path / "ray" / "unfinished.jsonl"
    wait_until(lambda: finished(journal) >= 6 and ray.available_resources().get("CPU", 0) == 0)
    cluster.remove_node(second, allow_graceful=False)
    assert finished(journal) < RUNS, "the node died before the sweep had ended"
    (tmp_path / "slow").unlink()
    printed, errors = process.communicate(timeout=300)
    assert (process.returncode, printed, errors) == (0, f"{RUNS} runs: ray/summaries.parquet\n", "")
    wait_until(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)
    assert run_cli("sweep", "spec.toml", "--out", "here", cwd=tmp_path).returncode == 0
    assert (tmp_path / "ray" / "summaries.parquet").read_bytes() == (tmp_path / "here" / "summaries.parquet").read_bytes()


def test_a_node_that_would_compute_something_else_is_refused() -> None:
    packed = pack(Job(load_config(overrides={"run.rounds": 5})))
    with pytest.raises(FedtwinError, match="another version of fedtwin"):
        run_chunk_on_a_node([{**packed, "key": "of another version"}])


def test_the_commands_run_on_a_cluster_of_their_own_and_go_on_after_a_kill(tmp_path: Path) -> None:
    write_spec(tmp_path)
    journal = tmp_path / "out" / "unfinished.jsonl"
    command = ["sweep", "spec.toml", "--out", "out"]
    process = start(tmp_path, *command, "--ray", "local")
    wait_until(lambda: finished(journal) >= 8)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    (tmp_path / "slow").unlink()
    again = run_cli(*command, "--ray", "local", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr.startswith("Going on: ") and again.stderr.count("\n") == 1
    assert run_cli(*command[:-1], "here", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out" / "summaries.parquet").read_bytes() == (tmp_path / "here" / "summaries.parquet").read_bytes()


def test_a_comparison_on_ray_prints_the_same(tmp_path: Path) -> None:
    command = ["compare", "--seeds", 3, "--rounds", 200, "--json"]
    on_ray, here = run_cli(*command, "--ray", "local", cwd=tmp_path), run_cli(*command, cwd=tmp_path)
    assert on_ray.returncode == 0 and (on_ray.stdout, on_ray.stderr) == (here.stdout, here.stderr)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "x y"])
def test_a_cluster_that_is_not_there_is_one_sentence_and_nothing_is_written(tmp_path: Path, address: str) -> None:
    write_spec(tmp_path)
    done = run_cli("sweep", "spec.toml", "--out", "out", "--ray", address, cwd=tmp_path)
    assert done.returncode == 2 and f"--ray {address} cannot be reached: " in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_a_cluster_without_a_gpu_is_one_sentence_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('seeds = 1\n[config.learning]\nexecutor = "cuda"\n')
    done = run_cli("sweep", "spec.toml", "--out", "out", "--ray", "local", cwd=tmp_path)
    assert done.returncode == 2 and "learning.executor = 'cuda' needs a GPU, and the Ray cluster has none: " in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("fault", ["raise KeyError('x')", "os._exit(1)"])
def test_a_run_that_fails_on_a_node_is_the_only_one(tmp_path: Path, fault: str) -> None:
    policy = write_faulty_policy(tmp_path, fault)
    (tmp_path / "spec.toml").write_text(f'schemes = ["{policy}", "CU-UCB"]\nseeds = 8\nrounds = 20\n', encoding="utf-8")
    done = run_cli("sweep", "spec.toml", "--out", "out", "--ray", "local", "--workers", 2, cwd=tmp_path)
    assert done.returncode == 3 and "1 of 16 runs failed, the first was faulty:POLICY, seed 1: " in done.stderr, done.stderr
    table = pd.read_parquet(tmp_path / "out" / "summaries.parquet")
    assert list(table.index[table["failed"].notna()]) == [1] and table["mean_cost"].notna().sum() == 15


def test_errors_of_a_run_come_back_as_they_are() -> None:
    possible = Job(load_config(overrides={"objective.min_mean_samples": 1.0, "run.rounds": 5}), stationary=True)
    impossible = Job(load_config(overrides={"objective.min_mean_samples": 4.0, "run.rounds": 5}), stationary=True)
    with (
        pytest.warns(UserWarning, match="cannot be met"),
        open_backend(ray="local") as backend,
        pytest.raises(FedtwinError, match="No stationary policy"),
    ):
        run_batch([possible, impossible], backend=backend)
