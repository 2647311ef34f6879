"""What the summary of a live run counts."""

from pathlib import Path

import pytest

from fedtwin import open_run
from fedtwin.live.run import events
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


def test_only_what_was_mixed_in_counts_as_trained(tmp_path: Path) -> None:
    """Neither a task that was given up, nor one that is still open, nor the first dispatches; one that came late does."""
    live = begun(tmp_path / "run")
    for sent in [dispatch(live) for _ in range(3)]:
        assert deliver(live, sent, weights(1.0)) is None

    def least() -> float:
        return float(open_run(tmp_path / "run").summary["least_mean_samples"])

    tasks = [dispatch(live) for _ in range(3)]
    assert least() == 0.0
    for sent in tasks[:2]:
        assert deliver(live, sent, weights(1.0)) is None
    live.commit(live.core.give_up(live.core.open[tasks[2].token], live.now_s(), "the deadline has passed", "offline"))
    assert least() == 0.0
    assert deliver(live, tasks[2], weights(1.0)) is None
    assert least() == pytest.approx(50 / live.core.round)
    live.close()


def test_the_last_model_is_not_evaluated_after_the_end_of_the_run(tmp_path: Path) -> None:
    """A worker may be slow to come; the model stood since the last upload."""
    live = begun(tmp_path / "run")
    assert deliver(live, dispatch(live), weights(1.0)) is None
    end_s = live.core.last_at_s
    told = {"round": 0, "version": 1, "energy_j": 0.0, "test_loss": 1.0, "test_accuracy": 0.5}
    live.commit(events.Measured(at_s=end_s + 7.0, model_at_s=end_s + 5.0, **told))
    live.close()
    assert 0.0 < open_run(tmp_path / "run").evaluations["clock_s"][0].as_py() <= end_s
