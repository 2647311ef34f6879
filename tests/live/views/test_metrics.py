"""Numbers for Prometheus that must not be lost, or were not to be seen."""

from pathlib import Path

from fedtwin.live.run import opening
from fedtwin.live.views.metrics import Metrics
from tests.live.run.test_live_run import begun


def value_of(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"fedtwin_{name}")


def test_quarantines_survive_a_resume(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    live.quarantine("a", "norm: too much")
    live.close()
    again, metrics = opening.resume(tmp_path / "run"), Metrics()
    metrics.resumed(again.core)
    again.listeners.append(lambda event, run: metrics.happened(event, run.core.live.time_scale))
    assert value_of(metrics, "quarantines_total") == 1
    again.quarantine("b", "norm: too much")
    assert value_of(metrics, "quarantines_total") == 2
    again.close()


def test_clipped_uploads_and_who_is_left_out_are_numbers_of_their_own(tmp_path: Path) -> None:
    live, metrics = begun(tmp_path / "run"), Metrics()
    live.listeners.append(lambda event, run: metrics.happened(event, run.core.live.time_scale))
    for _ in range(3):
        live.refuse("a", "result", "share: 30 of 100 uploads are 3 times its fair share among 10 devices")
    live.refuse("a", "result", "late: the task had been given up")
    assert value_of(metrics, "uploads_clipped_total") == 3
    metrics.left_out(backed_off=2, cut=1)
    assert (value_of(metrics, "devices_backed_off"), value_of(metrics, "devices_cut")) == (2, 1)
    live.close()
