"""A live run is read from its ledger while it goes on, and from its files when it has ended; its twin is the server's own."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtwin
from fedtwin import FedtwinError, open_run
from fedtwin.live.run import events, opening
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import write_records
from fedtwin.runs import Run
from fedtwin.runs.status import Watched
from fedtwin.twin import Twin, queue_at, total_queue
from tests.live.run.reading_back import as_read
from tests.live.run.reading_back import start_s as begins_s
from tests.live.run.test_live_run import CODEC, begun, config_of, deliver, dispatch, weights
from tests.live.run.test_replay import Driver

TABLES = ("devices", "start", "rounds", "tasks", "evaluations", "refusals")


def played(folder: Path, seed: int, steps: int, watch: Callable[[events.Event, LiveRun], None] | None = None) -> LiveRun:
    """A run to which anything that can happen has happened, by chance."""
    live = opening.begin(folder, config_of(**{"fleet.channels": 2}), "main", CODEC.encode(weights(0.0)))
    if watch is not None:
        live.listeners.append(watch)
    driver = Driver(live, seed)
    for _ in range(steps):
        driver.step()
    return live


def assert_same_tables(run: Run, other: Run) -> None:
    for name in TABLES:
        one, two = getattr(run, name), getattr(other, name)
        assert one.schema.equals(two.schema), name
        assert repr(one.to_pylist()) == repr(two.to_pylist()), name


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 250))
def test_the_twin_at_every_moment_is_the_one_the_server_had(seed: int, steps: int) -> None:
    clocks: list[float] = []
    twins: list[Twin] = []
    rounds: dict[int, Twin] = {}
    queues: dict[float, tuple[float, ...]] = {}

    def watch(event: events.Event, live: LiveRun) -> None:
        if live.core.started:
            start_s.append(event.at_s)
            clocks.append(event.at_s - start_s[0])
            twins.append(live.core.twin)
            if isinstance(event, events.Asked | events.Started):
                rounds.setdefault(getattr(event, "round", 0), live.core.twin)
            queues[clocks[-1]] = queues_of(live.core.twin, live.core.queue_round)

    start_s: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        live = played(Path(place, "run"), seed, steps, watch)
        run = open_run(Path(place, "run"))
        assert not run.finished
        if not twins:
            with pytest.raises(FedtwinError, match="has no twin yet: the run has not started"):
                run.twin()
            live.close()
            return
        assert run.twin() == as_read(twins[-1], start_s[0])
        for round_, twin in rounds.items():
            assert run.twin(round=round_) == as_read(twin, start_s[0]), round_
        with pytest.raises(FedtwinError, match=f"has the rounds 0 to {max(rounds)}"):
            run.twin(round=max(rounds) + 1)
        last_of = dict(zip(clocks, twins, strict=True))
        end_s = run._replay.end_s  # type: ignore[attr-defined]
        for clock_s, twin in last_of.items():
            if clock_s <= end_s:
                assert run.twin(seconds=clock_s) == as_read(twin, start_s[0]), clock_s
                shown = queues_of(run.twin(seconds=clock_s), run.moment(seconds=clock_s).queue_round)
                assert shown == queues[clock_s] and sum(shown) == pytest.approx(total_of(run, clock_s)), clock_s
        last = Watched(Path(place, "run")).look()["devices"]
        assert tuple(row["queue"] for row in last) == queues[clocks[-1]], "fedtwin status says what the page does"
        live.close()


def queues_of(twin: Twin, round_: int) -> tuple[float, ...]:
    """Q_n(t) of everybody; of who has taken the round already, that of the next."""
    return tuple(
        queue_at(one.queue, one.queue_round, max(round_, one.queue_round), twin.min_mean_samples) for one in twin.devices
    )


def total_of(run: Run, clock_s: float) -> float:
    return total_queue(run.twin(seconds=clock_s), run.moment(seconds=clock_s).queue_round)


def test_the_status_of_a_folder_sees_that_nothing_comes_any_more(tmp_path: Path) -> None:
    """The edge server is there and can write no line: only the clock tells."""
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    dispatch(live)
    assert Watched(live.folder).look()["run"]["state"] == "running"
    before = (live.folder / "ledger.jsonl").stat().st_mtime - 1000.0 * live.core.live.time_scale
    os.utime(live.folder / "ledger.jsonl", (before, before))
    shown = Watched(live.folder).look()["run"]
    assert shown["state"] == "stands still" and "the deadlines of all 1 tasks have passed" in shown["why"][0]
    live.close()


@pytest.mark.parametrize("more", [0, 1, 6], ids=["at once", "cut shorter", "longer than before"])
def test_whoever_watches_a_run_that_is_repaired_goes_on(tmp_path: Path, more: int) -> None:
    folder = tmp_path / "run"
    live = begun(folder)
    for _ in range(3):
        deliver(live, dispatch(live), weights(1.0))
    watched = Watched(folder)
    assert watched.look()["run"]["uploads"] == 3
    live.close()
    if more == 0:
        with (folder / "ledger.jsonl").open("ab") as ledger:
            ledger.write(bytes(64) + b"\n")
        for _ in range(2):
            with pytest.raises(FedtwinError, match="is damaged"):
                watched.look()
    else:
        lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "ledger.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    again = opening.resume(folder, repair=True)
    for _ in range(more):
        deliver(again, dispatch(again), weights(1.0))
    ledger_bytes = (folder / "ledger.jsonl").stat().st_size
    assert more == 0 or (ledger_bytes > len(b"".join(lines))) is (more == 6)
    shown, fresh = watched.look(), Watched(folder).look()
    assert shown["run"]["uploads"] == fresh["run"]["uploads"] == again.core.applied
    assert [row["uploads"] for row in shown["devices"]] == [row["uploads"] for row in fresh["devices"]]
    again.close()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_round_that_is_open_has_its_own_queues_and_one_that_is_decided_those_of_the_next(tmp_path: Path, mode: str) -> None:
    live = begun(tmp_path / "run", **{"run.mode": mode, "objective.min_mean_samples": 3.0})
    seen = [(live.core.round, live.core.queue_round)]
    live.listeners.append(lambda _, live: seen.append((live.core.round, live.core.queue_round)))
    if live.core.sync and isinstance(opened := live.core.next_ask(live.now_s()), events.Opened):
        live.commit(opened)
    sent = dispatch(live)
    while sent.round < 1:
        deliver(live, sent, weights(1.0))
        sent = dispatch(live)
    assert seen[0] == (0, 1) and (1, 1) in seen, "round 1 is open"
    assert seen[-1] == (1, 2), "and taken"
    live.close()


@pytest.mark.parametrize("seed", range(6))
def test_the_tables_of_a_ledger_are_those_written_at_the_end(tmp_path: Path, seed: int) -> None:
    live = played(tmp_path / "run", seed, 600)
    before = open_run(tmp_path / "run")
    summary = before.summary
    assert summary["unfinished"] is True and summary["live"] is True and not before.finished
    tables = [getattr(before, name) for name in TABLES]
    live.commit(events.Stopped(at_s=live.core.last_at_s, finished=True))
    write_records(tmp_path / "run", live.core, live.model)
    live.close()
    run = open_run(tmp_path / "run")
    assert run.finished and run.summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary.keys() - run.summary.keys() == {"unfinished"}
    assert summary["virtual_time_s"] <= run.summary["virtual_time_s"]  # the end is an event too
    assert summary["ended_by"] is None and isinstance(run.summary["ended_by"], str)
    assert all(summary[key] == value for key, value in run.summary.items() if key not in ("virtual_time_s", "ended_by"))
    assert_same_tables(run, before)
    assert tables[2].num_rows == run.rounds.num_rows > 0 and run.tasks.num_rows > 0
    assert run.twin() == before.twin() == as_read(live.core.twin, begins_s(tmp_path / "run"))
    assert np.array_equal(run.weights["w"], live.model.served.floats)
    assert np.array_equal(before.weights["w"], live.model.weights.floats), "while it goes on: what devices download"


def test_facts_of_the_twin_are_by_the_clock_of_the_records(tmp_path: Path) -> None:
    """An edge server waits for its devices before the run begins: that wait is in the ledger's clock, not in theirs."""
    live = begun(tmp_path / "run")
    assert begins_s(tmp_path / "run") > 0.0
    for _ in range(7):
        deliver(live, dispatch(live), weights(1.0))
    live.close()
    run = open_run(tmp_path / "run")
    rows = [*run.start.to_pylist(), *run.rounds.to_pylist()]
    for number, device in enumerate(run.twin().devices):
        answered_s = [row["clock_s"] for row in rows if row["device"] == number]
        assert (device.gain is None) == (not answered_s)
        if device.gain is not None:
            assert device.gain.learned_s == pytest.approx(max(answered_s), abs=1e-9)
        assert device.samples.learned_s == 0.0


def test_what_is_read_while_it_is_written(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    sent = dispatch(live)
    run = open_run(tmp_path / "run")
    assert run.config.fleet.devices == 3 and run.tasks.to_pylist()[0]["outcome"] == "open"
    assert run.devices["name"].to_pylist() == ["a", "b", "c"]
    assert [device.status for device in run.twin().devices].count("in-flight") == 1
    with (tmp_path / "run" / "ledger.jsonl").open("ab") as file:
        file.write(b'{"kind": "appl')
    assert open_run(tmp_path / "run").twin() == run.twin(), "a line that is not whole has not happened"
    (tmp_path / "run" / "ledger.jsonl").write_bytes((tmp_path / "run" / "ledger.jsonl").read_bytes()[: -len(b'{"kind": "appl')])
    deliver(live, sent, weights(1.0))
    assert run.tasks.to_pylist()[0]["outcome"] == "open", "what was read stays as it was read"
    again = open_run(tmp_path / "run")
    assert again.tasks.to_pylist()[0]["outcome"] == "applied" and again.twin().model_version == 1
    assert np.array_equal(again.weights["w"], live.model.weights.floats)
    live.close()


def unchained(ledger: bytes) -> bytes:
    """As lines were written before they were chained."""
    return re.sub(rb',"chain":"[0-9a-f]{16}"}', b"}", ledger)


def test_a_ledger_whose_lines_are_not_chained_is_still_read(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    live.close()
    ledger = tmp_path / "run" / "ledger.jsonl"
    ledger.write_bytes(unchained(ledger.read_bytes()))
    assert open_run(tmp_path / "run").twin() == as_read(live.core.twin, begins_s(tmp_path / "run"))
    with pytest.raises(FedtwinError, match="cannot be resumed: the lines of its ledger are not chained by checksums"):
        opening.resume(tmp_path / "run")


def test_damage_is_a_sentence(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    live.close()
    ledger = tmp_path / "run" / "ledger.jsonl"
    whole = ledger.read_bytes()
    lines = whole.splitlines(keepends=True)
    for damaged, sentence in (
        (whole.replace(b'"kind":"asked"', b'"kind":"axed"'), r"ledger\.jsonl' is damaged in line 6"),
        (b"".join(line for line in lines if b'"dispatched"' not in line), "is damaged in line 7: .* missing, doubled or moved"),
        (unchained(b"".join(line for line in lines if b'"started"' not in line)), "in line 5: asked cannot have happened"),
        (b"\xff\n" + whole, "is damaged in line 1"),
    ):
        ledger.write_bytes(damaged)
        with pytest.raises(FedtwinError, match=sentence):
            open_run(tmp_path / "run").twin()


def test_reading_runs_no_code_and_needs_no_broker(tmp_path: Path) -> None:
    """A policy of one's own is not loaded, and neither are the libraries of the network."""
    mine = "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: view.samples, power='max')\n"
    (tmp_path / "mine.py").write_text(mine)
    live = begun(tmp_path / "run", **{"policy.name": "mine:POLICY", "code.folder": str(tmp_path)})
    dispatch(live)
    dispatch(live)
    live.close()
    code = tmp_path / "run" / "code" / "mine.py"
    code.write_text(code.read_text() + f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    reading = (
        "import sys, fedtwin\n"
        "run = fedtwin.open_run(sys.argv[1])\n"
        "print(run.summary['scheme'], run.tasks.num_rows, len(run.twin().devices), run.devices.num_rows)\n"
        "print([name for name in ('nats', 'torch') if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(fedtwin.__file__).parents[1])}
    command = [sys.executable, "-W", "error", "-c", reading, str(tmp_path / "run")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert said.stdout.splitlines() == ["mine:POLICY 2 3 3", "[]"]
    assert not (tmp_path / "ran").exists()
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_tables_left_by_a_stop_are_not_believed_once_the_run_went_on(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    sent = dispatch(live)
    live.commit(events.Stopped(at_s=live.now_s(), finished=False))
    write_records(tmp_path / "run", live.core, live.model)
    live.close()
    again = opening.resume(tmp_path / "run")
    deliver(again, sent, weights(1.0))
    again.close()
    run = open_run(tmp_path / "run")
    assert not run.finished and run.tasks.to_pylist()[0]["outcome"] == "applied"
    shutil.rmtree(tmp_path / "run" / "models")
    with pytest.raises(FedtwinError, match="has no model"):
        _ = run.weights


def test_a_run_at_rest_has_its_tables_as_they_were(tmp_path: Path) -> None:
    """They are made after more was read on, and are those of the moment before."""
    live = played(tmp_path / "run", seed=7, steps=120)
    next_news = open_run(tmp_path / "run").reporter()
    resting = next_news().run.at_rest()
    before = open_run(tmp_path / "run")
    before.tasks  # noqa: B018
    driver = Driver(live, 8)
    for _ in range(120):
        driver.step()
    now = next_news().run
    assert now.tasks.num_rows > before.tasks.num_rows
    assert_same_tables(resting, before)
    live.close()
