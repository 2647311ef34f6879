"""The evaluation worker never holds up a run: one that cannot evaluate says so, one that is killed is started again."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from fedtwin.errors import FedtwinError
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server import evaluation, worker
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.evaluation import Evaluations
from fedtwin.live.wire.protocol import Evaluated, Subjects
from fedtwin.processes import runs_with
from tests.live.brokers import frozen
from tests.live.plant import LIMIT_S, events_of, plant, until
from tests.live.run.test_live_run import begun

LEARNING = {"learning__dataset": "digits", "learning__evaluate_every_s": 0.5, "fleet__devices": 1, "fleet__channels": 1}


async def somebody_evaluates(url: str) -> bool:
    """An answer, whatever it says."""
    client = Client()
    await client.connect([url])
    try:
        return bool((await client.request(Subjects("main").evaluate, b"?", timeout=LIMIT_S)).data)
    except NoRespondersError:
        return False
    finally:
        await client.close()


@pytest.mark.slow
def test_a_worker_that_cannot_evaluate_does_not_hold_up_the_end(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 20, "--time-scale", 0.2, **LEARNING)
        fleet.command("evaluator", "evaluator", "--server", fleet.url(), "--data", "missing.npz")
        until(lambda: asyncio.run(somebody_evaluates(fleet.url())), "the evaluator")
        fleet.device("d0", fleet.url(), "--no-training", "--samples", 40, "--radio", "emulated")
        assert fleet.ended("edge") == 0
        assert "not evaluated" in fleet.log("edge") and "'missing.npz' cannot be read" in fleet.log("edge")
        assert (fleet.run / "summary.json").exists() and not events_of(fleet.run, "evaluated")


def worker_of(edge: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{edge.pid}/task/{edge.pid}/children").read_text().split()
    workers = [int(pid) for pid in children if b"evaluator" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    assert len(workers) == 1
    return workers[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells who has started whom on Linux only")
@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with plant(tmp_path) as fleet:
        named = [word for key, value in LEARNING.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        edge = fleet.command("edge", "edge", "--out", fleet.run, "--rounds", 100_000, *named)
        fleet.device("d0", fleet.url(), "--no-training", "--samples", 40, "--radio", "emulated")
        fleet.wait_for("evaluated")
        worker = worker_of(edge)
        with frozen(worker):
            fleet.wait_for("applied", count=len(events_of(fleet.run, "applied")) + 10)  # it has been asked once more
            os.kill(worker, signal.SIGKILL)
        seen = len(events_of(fleet.run, "evaluated"))
        fleet.wait_for("evaluated", count=seen + 3)
        assert fleet.stopped("edge") == 0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells who has started whom on Linux only")
def test_a_worker_that_is_frozen_is_started_anew_and_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with plant(tmp_path) as fleet:
        named = [word for key, value in LEARNING.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        edge = fleet.command("edge", "edge", "--out", fleet.run, "--rounds", 100_000, *named)
        fleet.device("d0", fleet.url(), "--no-training", "--samples", 40, "--radio", "emulated")
        fleet.wait_for("evaluated", count=2)
        os.kill(worker_of(edge), signal.SIGSTOP)
        fleet.wait(lambda: "not evaluated  reason=the worker did not answer within" in fleet.log("edge"), "a word")
        fleet.wait_for("evaluated", count=len(events_of(fleet.run, "evaluated")) + 2)

        broker = int((fleet.run / "broker" / "nats.pid").read_text(encoding="utf-8"))
        os.kill(worker_of(edge), signal.SIGSTOP)
        edge.terminate()
        fleet.wait(lambda: (fleet.run / "rounds.parquet").exists(), "the records")
        edge.terminate()
        fleet.ended("edge")
        assert not runs_with(broker, str(fleet.run.resolve()))


def test_a_worker_that_does_not_hear_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STOP_S", 0.2)
    made = worker.Worker(["sh", "-c", f"trap '' TERM; touch {tmp_path}/deaf; exec sleep 100"])
    until((tmp_path / "deaf").exists, "a deaf worker")
    made.stop()
    assert made._process.returncode == -signal.SIGKILL


def evaluations_of(live: LiveRun) -> Evaluations:
    """With a worker that answers at once."""

    async def request(*_: object, **__: object) -> bytes:
        return Evaluated(test_loss=0.5, test_metric=0.75).encoded()

    transport: Any = SimpleNamespace(request=request, max_payload=2**20, connected=True)
    return Evaluations(EdgeContext(live, transport))


@pytest.mark.parametrize("name", ["loss", "round", "version", "level", "message", "rmse"])
def test_a_metric_of_ones_own_may_have_any_name(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "mine.py").write_text(f"def {name}(outputs, targets):\n    return 0.75\n", encoding="utf-8")
    live = begun(tmp_path / "run", **{"learning.metric": f"mine:{name}", "code.folder": str(tmp_path)})
    assert asyncio.run(evaluations_of(live)._evaluate())
    said = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "evaluated"]
    assert said == [{"round": 0, "version": 0, "metric": 0.75, "loss": 0.5}]
    live.close()


def test_an_evaluation_that_fails_is_told_once_and_does_not_cost_the_run_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = begun(tmp_path / "run")
    evaluations = evaluations_of(live)

    def fails(_: object) -> float:
        raise ZeroDivisionError("nobody has thought of it")

    monkeypatch.setattr(evaluation, "_metric", fails)
    monkeypatch.setattr(evaluation, "RETRY_S", 0.0)

    async def goes_on() -> None:
        for _ in range(3):
            evaluations._next_s = 0.0
            evaluations.tick()
            assert evaluations._job is not None
            await asyncio.wait([evaluations._job])
        await evaluations.last()

    asyncio.run(goes_on())
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in said] == ["the evaluation failed"]
    assert said[0].__dict__["fields"] == {"reason": "ZeroDivisionError: nobody has thought of it"}
    assert [record.getMessage() for record in caplog.records][-1] == "the final model was not evaluated"
    live.close()


def test_a_ledger_that_cannot_be_written_ends_the_run_in_an_evaluation_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = begun(tmp_path / "run")

    def full(_: object) -> None:
        raise FedtwinError("No space left.")

    with monkeypatch.context() as patch:
        patch.setattr(live._ledger, "append", full)
        with pytest.raises(FedtwinError, match="No space left"):
            asyncio.run(evaluations_of(live)._evaluate())
    live.close()
