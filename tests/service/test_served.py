"""Runs that grow, are damaged, or are not there yet: the server goes on, and says what it meets."""

import shutil
import threading
from pathlib import Path

import httpx
import pytest

from fedtwin import Run, open_run
from fedtwin.live.run import opening
from fedtwin.service.moments import seen
from fedtwin.service.twins import Twins
from tests.conftest import until
from tests.live.run.test_live_run import CODEC, begun, config_of, deliver, dispatch, weights
from tests.runs.test_simulated import unfinish
from tests.service.folders import simulated
from tests.service.serving import serving


def listed(client: httpx.Client, number: int = 0) -> dict[str, object]:
    found: dict[str, object] = client.get("/api/runs").json()["runs"][number]
    return found


def test_a_simulation_that_is_written_on_is_followed(folder: Path, tmp_path: Path) -> None:
    grown = tmp_path / "run"
    shutil.copytree(folder, grown)
    shutil.copytree(folder, tmp_path / "whole")
    unfinish(grown, 200, 200)
    with serving(grown) as client:
        assert (listed(client)["rounds"], listed(client)["finished"]) == (200, False)
        fleet = client.get("/api/runs/run/fleet").json()
        assert fleet["live"] and fleet["round"] == 200
        for name in ("rounds.parquet", "unfinished.json"):
            (shutil.rmtree if (grown / name).is_dir() else Path.unlink)(grown / name)
        for name in ("rounds.parquet", "SHA256SUMS", "summary.json"):
            shutil.copy(tmp_path / "whole" / name, grown / name)
        until(lambda: listed(client)["finished"], "the end of the run is seen")
        assert client.get("/api/runs/run/fleet").json()["round"] == 400


def test_a_run_that_cannot_be_read_is_told_and_others_go_on(folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    data = bytearray((damaged / "rounds.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    (damaged / "rounds.parquet").write_bytes(data)
    with serving(damaged, folder, tmp_path / "nothing") as client:
        until(lambda: "rounds.parquet" in str(listed(client)["unreadable"]), "the damage is found")
        assert listed(client, 1)["unreadable"] is None
        assert listed(client, 2)["unreadable"] == "The run 'nothing' has not begun yet."
        refused = client.get("/api/runs/damaged/fleet")
        assert refused.status_code == 409 and "rounds.parquet" in refused.json()["error"]
        assert client.get("/api/2/search/things/count").json() == 31


def test_a_run_that_begins_later_is_there_then(folder: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "late") as client:
        assert listed(client)["unreadable"]
        shutil.copytree(folder, tmp_path / "late")
        until(lambda: listed(client)["unreadable"] is None, "the run has begun")


def test_a_finished_run_whose_folder_is_another_by_now_is_read_anew(folder: Path, tmp_path: Path) -> None:
    """Its rounds were read from the disk when they were asked for: the answers were of both runs."""
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    other = simulated(tmp_path / "other", **{"run.rounds": 50, "run.seed": 9})
    with serving(run) as client:
        assert listed(client)["rounds"] == 400 and client.get("/api/runs/run/curves").status_code == 200
        shutil.rmtree(run)
        assert client.get("/api/runs/run/fleet").status_code == 409
        shutil.copytree(other, run)
        until(lambda: listed(client)["rounds"] == 50, "the other run is seen")
        tasks = client.get("/api/runs/run/tasks").json()["tasks"]
        assert max(task["round"] for task in tasks) == 50 and client.get("/api/runs/run/fleet").json()["round"] == 50


@pytest.mark.parametrize("name", ["rounds.parquet", "devices.parquet", "config.toml"])
def test_a_file_of_a_finished_run_that_is_another_by_now_is_noticed(folder: Path, tmp_path: Path, name: str) -> None:
    """Only the summary was looked at: a table that was exchanged alone was read as if it were the run's."""
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    with serving(run) as client:
        assert client.get("/api/runs/run/fleet").status_code == 200
        other = tmp_path / name
        other.write_bytes((run / name).read_bytes()[:-1] + b"!")
        other.replace(run / name)
        refused = client.get("/api/runs/run/curves")
        assert refused.status_code == 409, refused.text
        until(lambda: name in str(listed(client)["unreadable"]), "the damage is found")
        shutil.copy(folder / name, run / name)
        until(lambda: client.get("/api/runs/run/curves").status_code == 200, "the run is whole again")


@pytest.mark.parametrize("how", ["cut", "removed", "replaced"])
def test_a_ledger_that_loses_lines_while_it_is_read_is_noticed(tmp_path: Path, how: str) -> None:
    live = begun(tmp_path / "run")
    for _ in range(3):
        deliver(live, dispatch(live), weights(1.0))
    live.close()
    ledger = tmp_path / "run" / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    with serving(tmp_path / "run") as client:
        whole = client.get("/api/runs/run/fleet").json()["revision"]
        assert whole == len(lines)
        if how == "removed":
            ledger.unlink()
            until(lambda: listed(client)["unreadable"], "it is said that there is no run any more")
            assert client.get("/api/runs/run/fleet").status_code == 409
            return
        if how == "replaced":
            (tmp_path / "other").write_bytes(b"".join(lines[:-2]))
            (tmp_path / "other").replace(ledger)
        else:
            with ledger.open("r+b") as file:
                file.truncate(sum(map(len, lines[:-2])))
        until(lambda: client.get("/api/runs/run/fleet").json().get("revision") == whole - 2, "what is left is read")


def test_what_was_made_of_a_run_is_never_kept_as_if_of_the_next(folder: Path) -> None:
    """Run and version were read apart: a run taken in between gave its version to what was made of the one before."""
    twins = Twins([folder])
    with twins.opened():
        served = twins.run("factory")
        assert served.readable
        old, new = served._now.run, open_run(folder)

        def make(run: Run) -> bool:
            return run is new

        with served._reading() as (run, now):
            served._take(new, now.stamp)
            assert run is old and now.version == served.version - 1
        assert served.remembered("which", make) is True
    assert old is not new


def test_a_run_that_has_not_started_has_no_moments(tmp_path: Path) -> None:
    live = opening.begin(tmp_path / "run", config_of(), "main", CODEC.encode(weights(0.0)))
    with serving(tmp_path / "run") as client:
        assert client.get("/api/runs/run/fleet").status_code == 200
        for at in ("round:7", "revision:99", "seconds:5"):
            answer = client.get("/api/runs/run/fleet", params={"at": at})
            assert answer.status_code == 404 and "it has not started" in answer.json()["error"], answer.text
    live.close()


def test_runs_of_one_name_are_told_apart(folder: Path, tmp_path: Path) -> None:
    other = simulated(tmp_path / "factory", run__rounds=20, run__engine="readable")
    with serving(folder, other) as client:
        told = client.get("/api/runs").json()["runs"]
        assert [(one["id"], one["rounds"]) for one in told] == [("factory", 400), ("factory-2", 20)]


def test_a_run_without_records_says_so(tmp_path: Path) -> None:
    quiet = simulated(tmp_path / "quiet", run__rounds=20, run__records=False)
    with serving(quiet) as client:
        assert client.get("/api/runs/quiet").status_code == 200
        for address in ("/fleet", "/curves", "/tasks", "/decision?round=3", "/fidelity"):
            answer = client.get(f"/api/runs/quiet{address}")
            assert answer.status_code in (404, 409) and answer.json()["error"], address


def test_a_live_run_is_read_on_while_its_curves_are_made(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    twins = Twins([tmp_path / "run"])
    with twins.opened():
        served, started, more = twins.run("run"), threading.Event(), threading.Event()

        def make(run: Run) -> int:
            started.set()
            assert more.wait(30)
            return run.tasks.num_rows

        found: list[int] = []
        making = threading.Thread(target=lambda: found.append(served.made_of_tables("curves", make)))
        making.start()
        assert started.wait(30)
        deliver(live, dispatch(live), weights(1.0))
        until(lambda: (seen(served) or pytest.fail("it has started")).twin.model_version == 2, "the second upload is seen")
        more.set()
        making.join()
        assert found == [1], "the tables of before"
    live.close()


def test_moments_count_what_has_happened(folder: Path) -> None:
    run = open_run(folder)
    last = run.moment()
    assert last.round == 400 and last.queue_round == 401
    for round_ in (1, 17, 400):
        moment = run.moment(round=round_)
        assert (moment.round, moment.queue_round) == (round_, round_)
        assert run.moment(revision=moment.revision) == moment
        assert run.twin(revision=moment.revision) == run.twin(round=round_)
    assert run.moment(round=0)[:2] == (0, 0)
    with pytest.raises(Exception, match=f"has the revisions 0 to {last.revision}"):
        run.twin(revision=last.revision + 1)
