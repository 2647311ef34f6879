"""The longest queue from the records of a run, against the queues of a trace."""

import pytest

from fedtwin.config import load_config
from fedtwin.experiments.analysis.queues import longest_queues
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.sim import simulate


@pytest.mark.parametrize("scheme", ["CU-UCB", "Sy-fairness"])
def test_the_longest_queue_is_that_of_the_trace(scheme: str) -> None:
    config = load_config(overrides={"run.rounds": 300, "policy.name": scheme, "objective.max_time_s": 0.6})
    traced = simulate(config, trace=True, checkpoints=(1, 2, 15, 100, 290))
    rows = traced.rounds.to_pylist()
    seen = [max(next(row["queues"] for row in rows if row["round"] == round_)) for round_ in traced.series.rounds]
    assert len(seen) >= 3 and max(seen) > 0.0 and longest_queues(traced) == seen


def test_a_batch_brings_it_where_it_is_asked_for() -> None:
    config = load_config(overrides={"run.rounds": 60, "run.records": False})
    asked, plain = run_batch([Job(config, (20, 60), queues=True), Job(config, (20, 60))], workers=1)
    assert asked.series.total_queue == plain.series.total_queue and plain.series.longest_queue == []
    assert [0 < queue < total for queue, total in zip(asked.series.longest_queue, asked.series.total_queue, strict=True)] == [
        True
    ] * 2
