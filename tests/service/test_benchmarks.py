"""The benchmarks of the page measure what they say; how much that is, is theirs to find out (docs/twin.md)."""

import shutil
from pathlib import Path

import pytest
from benchmarks import page_cost, page_latency, page_paint

from tests.service.folders import simulated

HERE = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
pytest.importorskip("playwright", reason="Playwright is not installed here")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HERE, reason="no chromium is installed here")]


def test_every_decision_and_upload_is_seen_after_its_line(tmp_path: Path) -> None:
    found = page_latency.measure(tmp_path, devices=2, rounds=80, browser=True)
    assert set(found) == {"a listener", "a Chromium"}
    for late in found.values():
        assert all(len(times) >= 10 and min(times) > 0.0 for times in late.values())


def test_a_page_with_viewers_beside_an_edge_server_at_its_fastest(tmp_path: Path) -> None:
    found = page_cost.saturated(tmp_path, devices=2, rounds=300, viewers=2)
    assert found["uploads_per_s"] > 0.0 < found["page_cpu_percent"]
    assert found["viewers_events"] > 2 and found["viewers_answers"] > 4 and found["viewers_refused"] == 0


def test_the_page_of_a_simulation_is_painted_moved_and_filtered(tmp_path: Path) -> None:
    found = page_paint.measure(simulated(tmp_path / "run", run__rounds=200), times=2, moves=3)
    assert len(found["map and table"]) == 2
    assert all(min(times) > 0.0 for times in found.values())
