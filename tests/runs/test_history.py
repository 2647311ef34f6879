"""The twin at any past moment is the one the coordinator had there, in every field and to the last bit."""

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtwin import Run, open_run, simulate
from fedtwin.config import build_config
from fedtwin.errors import FedtwinError
from fedtwin.registry import POLICIES
from fedtwin.twin import Twin, queue_at, total_queue
from tests.runs.truth import truth_of


def possible(changes: dict[str, Any]) -> dict[str, Any]:
    """No more channels than devices, and no timeout of a round that waits for nobody."""
    if changes["run.mode"] == "async":
        changes = {**changes, "run.sync_timeout_s": None}
    return {**changes, "fleet.channels": min(changes["fleet.channels"], changes["fleet.devices"])}


SETTINGS = st.fixed_dictionaries(
    {
        "policy.name": st.sampled_from(list(POLICIES)),
        "policy.feedback": st.sampled_from(["on-selection", "on-arrival"]),
        "policy.power": st.sampled_from(["scheme", "optimal", "max"]),
        "run.mode": st.sampled_from(["async", "sync"]),
        "run.sync_timeout_s": st.sampled_from([None, 0.2, 0.5, 0.8]),
        "run.rounds": st.integers(1, 60),
        "run.seed": st.integers(0, 2**63 - 1),
        "run.engine": st.just("readable"),
        "fleet.devices": st.integers(1, 12),
        "fleet.channels": st.integers(1, 12),
        "objective.max_time_s": st.sampled_from([0.3, 0.5, 0.7, 1.0]),
        "objective.min_mean_samples": st.sampled_from([0.0, 1.0, 3.3, 40.0]),
        "fleet.samples_spread": st.sampled_from([0.0, 0.02, [0.0, 0.9]]),
        "fleet.max_power_w": st.sampled_from([1.0, [0.01, 1.0]]),
    }
).map(possible)
quiet = pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")


def without_losses(twin: Twin) -> Twin:
    """The truth is played without a learner, so that it knows of no losses."""
    return twin._replace(devices=tuple(device._replace(train_loss=None) for device in twin.devices))


def check_every_moment(changes: dict[str, Any], folder: Path) -> Run:
    config = build_config({}, changes)
    simulate(config, out=folder)
    run, truth = open_run(folder), truth_of(config)
    for round_, twin in enumerate(truth.at_round):
        assert without_losses(run.twin(round=round_)) == twin, round_
    clocks = sorted({clock_s for clock_s, _ in truth.changes})
    between = [(first + second) / 2 for first, second in pairwise(clocks)]
    for seconds in [0.0, *clocks, *between]:
        if seconds <= truth.end_s:
            assert without_losses(run.twin(seconds=seconds)) == truth.at_seconds(seconds), seconds
    assert run.twin() == run.twin(seconds=truth.end_s)
    assert without_losses(run.twin()) == truth.changes[-1][1]
    return run


@quiet
@settings(max_examples=120)
@given(changes=SETTINGS)
def test_every_moment_of_every_kind_of_run(changes: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_every_moment(changes, Path(folder, "run"))


@quiet
@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("feedback", ["on-selection", "on-arrival"])
def test_every_moment_of_a_compiled_run(tmp_path: Path, mode: str, feedback: str) -> None:
    changes = {"run.mode": mode, "policy.feedback": feedback, "run.engine": "compiled", "run.rounds": 400, "fleet.channels": 5}
    unlike = {"fleet.samples_spread": [0.0, 0.6], "fleet.max_time_s": [0.6, 0.8]}
    run = check_every_moment({**changes, **unlike, "objective.min_mean_samples": 3.3}, tmp_path / "run")
    assert run.summary["declines"] > 0


@pytest.mark.parametrize(("mode", "timeout_s"), [("async", None), ("sync", None), ("sync", 0.6)])
def test_every_moment_of_a_training_run(tmp_path: Path, mode: str, timeout_s: float | None) -> None:
    learning = {"learning.dataset": "digits", "learning.executor": "serial", "run.sync_timeout_s": timeout_s}
    run = check_every_moment(
        {**learning, "run.mode": mode, "run.rounds": 30, "fleet.channels": 4, "fleet.devices": 6}, tmp_path / "run"
    )
    whose = "arrived" if mode == "async" else "device"
    losses = {row[whose]: row["train_loss"] for row in run.rounds.to_pylist() if row["train_loss"] is not None}
    known = {number: one.train_loss.value for number, one in enumerate(run.twin().devices) if one.train_loss is not None}
    assert known == losses and losses


def test_the_queues_are_those_of_the_records(tmp_path: Path) -> None:
    simulate(build_config({}, {"run.rounds": 300, "objective.max_time_s": 0.7}), out=tmp_path / "run")
    run = open_run(tmp_path / "run")
    d_min = run.config.objective.min_mean_samples
    seen = set()
    for row in run.rounds.to_pylist():
        if row["round"] not in seen:
            seen.add(row["round"])
            twin = run.twin(round=row["round"])
            device = twin.devices[row["device"]]
            assert queue_at(device.queue, device.queue_round, row["round"], d_min) == row["queue"]
            assert total_queue(twin, row["round"]) == row["total_queue"]
    assert len(seen) == 300


def test_a_moment_is_named_plainly(tmp_path: Path) -> None:
    simulate(build_config({}, {"run.rounds": 20}), out=tmp_path / "run")
    run = open_run(tmp_path / "run")
    end_s = run.summary["virtual_time_s"]
    for moment, sentence in (
        ({"round": 21}, r"twin\(round=21\): .* has the rounds 0 to 20"),
        ({"round": -1}, r"has the rounds 0 to 20"),
        ({"round": 1.0}, r"twin\(round=1.0\): a round is a whole number; a time is twin\(seconds=…\)"),
        ({"round": True}, r"a round is a whole number"),
        ({"seconds": -1.0}, r"must be 0 or more seconds"),
        ({"seconds": float("nan")}, r"must be 0 or more seconds"),
        ({"seconds": end_s + 1e-6}, r"goes from 0 to"),
        ({"round": 1, "seconds": 1.0}, r"one of them"),
    ):
        with pytest.raises(FedtwinError, match=sentence):
            run.twin(**moment)
    with pytest.raises(TypeError):
        run.twin(3)  # type: ignore[call-arg]
    assert run.twin(seconds=end_s) == run.twin()
    assert run.twin(seconds=1) == run.twin(seconds=1.0)


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("device", 99, "devices that are not in the fleet"),
        ("round", 7, "not numbered 1, 2, 3"),
        ("arrived", 99, "not in the fleet"),
        ("arrived", 3, "nobody was asked for"),
    ],
)
def test_records_that_cannot_be_of_one_run_are_a_sentence(tmp_path: Path, column: str, value: int, sentence: str) -> None:
    """Of an unfinished run, whose rounds have no checksums that would tell."""
    folder = tmp_path / "run"
    simulate(build_config({}, {"run.rounds": 20, "fleet.channels": 2, "run.seed": 3}), out=folder)
    rounds = open_run(folder).rounds
    (folder / "summary.json").rename(folder / "unfinished.json")
    (folder / "unfinished.json").write_text('{"trace": false}')
    values = rounds[column].to_pylist()
    values[4] = value
    place = rounds.schema.get_field_index(column)
    pq.write_table(rounds.set_column(place, column, pa.array(values, pa.int64())), folder / "rounds.parquet")
    with pytest.raises(FedtwinError, match=sentence):
        open_run(folder).twin()
