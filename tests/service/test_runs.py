"""What is told of a run over HTTP is what its records say."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from fedtwin import Run
from fedtwin.twin import queue_at, total_queue
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.service.folders import simulated
from tests.service.serving import serving


def get(client: httpx.Client, address: str) -> Any:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_all_runs_are_listed(client: httpx.Client, run: Run) -> None:
    (told,) = get(client, "/api/runs")["runs"]
    assert told["id"] == "factory" and told["kind"] == "simulation" and told["finished"] and told["unreadable"] is None
    assert (told["devices"], told["rounds"], told["scheme"]) == (30, 400, "CU-UCB")
    assert told["end_s"] == run.moment().seconds


def test_one_run_has_its_summary_and_settings(client: httpx.Client, run: Run) -> None:
    told = get(client, "/api/runs/factory")
    assert told["summary"] == json.loads(json.dumps(run.summary))
    assert told["settings"]["fleet.channels"] == 5 and told["settings"]["objective.max_time_s"] == 1.0


@pytest.mark.parametrize("round_", [1, 2, 57, 399, 400])
def test_the_fleet_at_a_round_is_the_twin_the_policy_saw(client: httpx.Client, run: Run, round_: int) -> None:
    told, twin = get(client, f"/api/runs/factory/fleet?at=round:{round_}"), run.twin(round=round_)
    columns = told["columns"]
    assert told["round"] == round_ and told["model_version"] == twin.model_version and not told["live"]
    assert columns["status"] == [device.status for device in twin.devices]
    assert columns["selections"] == [device.selections for device in twin.devices]
    assert columns["gain"] == [None if device.gain is None else device.gain.value for device in twin.devices]
    assert columns["queue"] == [queue_at(one.queue, one.queue_round, round_, twin.min_mean_samples) for one in twin.devices]
    assert columns["mean_cost"] == [one.mean_cost if one.observations else None for one in twin.devices]
    learned = sum(one.observations for one in twin.devices)
    for mean, summed in (("mean_cost", "cost_sum"), ("mean_time_s", "time_sum_s"), ("mean_energy_j", "energy_sum_j")):
        assert told[mean] == (sum(getattr(one, summed) for one in twin.devices) / learned if learned else None)
    rows = run.rounds.filter((run.rounds["round"].to_numpy() == round_).tolist())
    assert told["total_queue"] == rows["total_queue"][0].as_py() == total_queue(twin, round_)
    assert told["seconds"] == rows["clock_s"][0].as_py()


def test_the_fleet_now_has_the_total_queue_of_the_summary(client: httpx.Client, run: Run) -> None:
    get(client, "/api/runs/factory/fidelity")  # the marks are made by a thread: they are there from now on
    told = get(client, "/api/runs/factory/fleet")
    assert told["total_queue"] == run.summary["total_queue"]
    assert told == get(client, f"/api/runs/factory/fleet?at=revision:{told['revision']}")
    assert told["columns"] == get(client, f"/api/runs/factory/fleet?at=seconds:{told['seconds']!r}")["columns"]


def test_a_second_between_two_decisions_is_after_the_first(client: httpx.Client, run: Run) -> None:
    clock_s = run.rounds["clock_s"].to_numpy()
    middle = float(clock_s[99] + clock_s[100]) / 2
    told = get(client, f"/api/runs/factory/fleet?at=seconds:{middle!r}")
    assert told["round"] == 100 and told["seconds"] == middle
    assert sum(told["columns"]["selections"]) == 100


def test_curves_are_means_of_the_rows(client: httpx.Client, run: Run) -> None:
    told = get(client, "/api/runs/factory/curves?points=7")
    rows = run.to_pandas()
    edges = np.linspace(rows.clock_s.iloc[0], rows.clock_s.iloc[-1], 8)
    parts = [
        rows[(rows.clock_s >= low) & ((rows.clock_s < high) | (high == edges[-1]))] for low, high in pairwise(edges.tolist())
    ]
    taken = [part[~part.declined] for part in parts]
    assert told["energy_j"] == pytest.approx([(part.compute_j + part.upload_j).mean() for part in taken])
    assert told["total_queue"] == pytest.approx([part.total_queue.mean() for part in parts])
    assert told["staleness"] == pytest.approx([part.drop_duplicates("round").staleness.mean() for part in parts])
    assert told["mean_cost"][-1] == pytest.approx(run.summary["mean_cost"])
    assert told["round"][-1] == 400 and told["clock_s"][-1] == rows.clock_s.iloc[-1]


def test_tasks_begin_and_end_as_the_rows_say(client: httpx.Client, run: Run) -> None:
    told = get(client, "/api/runs/factory/tasks?limit=10000")
    assert told["left_off"] == 0
    taken = [row for row in [*run.start.to_pylist(), *run.rounds.to_pylist()] if not row["declined"]]
    assert len(told["tasks"]) == len(taken)
    arrivals = {(row["arrived"], row["clock_s"]) for row in run.rounds.to_pylist() if row["arrived"] is not None}
    ended = {(task["device"], task["end_s"]) for task in told["tasks"] if task["outcome"] == "applied"}
    assert sorted(device for device, _ in ended) == sorted(device for device, _ in arrivals)
    assert sorted(second for _, second in ended) == pytest.approx(sorted(second for _, second in arrivals))
    assert sum(task["outcome"] == "open" for task in told["tasks"]) == 5


def test_tasks_of_a_window_are_those_under_way_in_it(client: httpx.Client) -> None:
    every = get(client, "/api/runs/factory/tasks?limit=10000")["tasks"]
    told = get(client, "/api/runs/factory/tasks?from_s=3&to_s=4")
    assert told["tasks"] == [one for one in every if one["sent_s"] <= 4 and (one["end_s"] is None or one["end_s"] >= 3)]
    few = get(client, "/api/runs/factory/tasks?from_s=3&to_s=4&limit=2")
    assert few["tasks"] == told["tasks"][-2:] and few["left_off"] == len(told["tasks"]) - 2


def test_a_decision_is_explained_by_the_scores_that_were_written_down(client: httpx.Client, run: Run) -> None:
    for row in run.rounds.slice(0, 60).to_pylist():
        if row["declined"]:
            continue
        told = get(client, f"/api/runs/factory/decision?round={row['round']}&device=3")
        chosen = str(row["device"])
        assert told["chosen"] == row["device"] and told["scores"][chosen] == row["index"], told
        assert told["parts"] is not None
        assert sum(told["parts"][chosen].values()) == pytest.approx(row["index"], abs=1e-6)
        if told["runner_up"] is not None and not told["declined"]:
            assert told["scores"][str(told["runner_up"])] >= row["index"]
        assert "3" in told["scores"] and "device-3" in told["why"]
        assert get(client, f"/api/runs/factory/decision?round={row['round']}&device=device-3") == told, "by its name, too"


def test_who_was_drained_then_was_not_to_be_asked_and_that_is_why(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"fleet.channels": 1})
    for _ in range(6):
        deliver(live, dispatch(live), weights(1.0))
    live.steer("drain", name="b")
    for _ in range(4):
        last = dispatch(live)
        deliver(live, last, weights(1.0))
    live.close()
    with serving(tmp_path / "run") as client:
        told = get(client, f"/api/runs/run/decision?round={last.round}&device=b")
        assert (told["available"], told["rank"], told["candidates"]) == (False, None, 2), told
        assert told["why"] == "b could not be asked: it was drained."


def test_scores_that_no_records_have_are_null_with_the_reason(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "genie", run__rounds=20, policy__name="genie", run__engine="readable")
    with serving(folder) as client:
        told = get(client, "/api/runs/genie/decision?round=7&device=2")
    assert told["parts"] is None and told["runner_up"] is None and "true cost" in told["why"]
    assert told["scores"] == {str(told["chosen"]): told["scores"][str(told["chosen"])]}


POLICY = """
from pathlib import Path
from fedtwin.policies import Policy
Path(__file__).with_name("ran").touch()
POLICY = Policy(lambda view, knobs: view.samples, power="optimal")
"""


def test_code_of_the_owner_is_run_with_trust_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(POLICY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    import fedtwin

    config = fedtwin.load_config(overrides={"policy.name": "mine:POLICY", "run.rounds": 30}, code_in=[tmp_path])
    fedtwin.simulate(config, out=tmp_path / "own")
    for mark in tmp_path.rglob("ran"):
        mark.unlink()
    with serving(tmp_path / "own") as client:
        for address in ("", "/fleet", "/curves", "/tasks", "/refusals", "/fidelity", "/places"):
            assert client.get(f"/api/runs/own{address}").status_code == 200, address
        assert client.get("/api/2/things").status_code == 200
        answer = client.get("/api/runs/own/decision?round=7")
        assert answer.status_code == 403 and "--trust" in answer.json()["error"]
        asked = client.post("/api/whatif", json={"run": "own", "rounds": 10, "worlds": 2})
        assert asked.status_code == 403 and "policy.name = 'mine:POLICY'" in asked.json()["error"]
        assert list(tmp_path.rglob("ran")) == []
    with serving(tmp_path / "own", trust=True) as client:
        assert client.get("/api/runs/own/decision?round=7").json()["runner_up"] is not None
        assert list(tmp_path.rglob("ran")) != []


def test_curves_up_to_a_second_before_the_first_decision_have_no_point(client: httpx.Client) -> None:
    assert client.get("/api/runs/factory/curves?to_s=0").json()["clock_s"] == []


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/api/runs/factory/fleet?at=round:401", 404, "round 400"),
        ("/api/runs/factory/fleet?at=round:-1", 400, "latest, revision:K"),
        ("/api/runs/factory/fleet?at=seconds:nan", 400, "at = 'seconds:nan'"),
        ("/api/runs/factory/fleet?when=now", 400, "'when' is not known"),
        ("/api/runs/factory/curves?from_s=3&to_s=2", 400, "from_s = 3 is not allowed: it is after to_s = 2"),
        ("/api/runs/factory/fleet?at=latest&at=latest", 400, "given twice"),
        ("/api/runs/nothing/fleet", 404, "no run 'nothing'"),
        ("/api/runs/factory/decision", 400, "'round' is missing"),
        ("/api/runs/factory/decision?round=1e3", 400, "a whole number from 1"),
        ("/api/runs/factory/decision?round=9&device=30", 404, "device = '30': in round 9 there were the devices 0 to 29"),
        ("/api/runs/factory/decision?round=9&device=press-1", 404, "device = 'press-1': in round 9 there were"),
        ("/api/runs/factory/decision?round=9&device=-1.5", 400, "by number, or by name"),
        ("/api/runs/factory/curves?points=0", 400, "from 1 to 5000"),
        ("/api/runs/factory/tasks?from_s=inf", 400, "from_s = 'inf'"),
        ("/api/nothing", 404, "/openapi.json"),
    ],
)
def test_what_cannot_be_answered_is_a_status_and_a_sentence(
    client: httpx.Client, address: str, status: int, words: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == status and answer.json()["status"] == status and words in answer.json()["error"], answer.text


def test_another_method_is_told_which_are_allowed(client: httpx.Client) -> None:
    answer = client.post("/api/runs")
    assert answer.status_code == 405 and answer.headers["allow"] == "GET"


def test_the_page_may_load_nothing_from_elsewhere(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    for outside in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/", "/static/nothing.js"):
        assert client.get(outside).status_code == 404, outside


def test_positions_of_the_owners_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("x_m,y_m,samples,cpu_hz\n30,40,80,2e9\n-60,0,90,1e9\n", encoding="utf-8")
    settings = {"fleet__file": str(tmp_path / "fleet.csv"), "fleet__channels": 1, "run__engine": "readable"}
    with serving(simulated(tmp_path / "run", run__rounds=10, **settings)) as client:
        told = get(client, "/api/runs/run/places")
    assert told == {"x_m": [30.0, -60.0], "y_m": [40.0, 0.0], "distance_m": [50.0, 60.0], "known": "position"}
