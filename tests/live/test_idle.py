"""Hundreds of idle devices cost little; ``benchmarks/idle.py`` measures thousands."""

from pathlib import Path

import pytest
from benchmarks.idle import measure

MOST_MB = 250.0


@pytest.mark.slow
def test_idle_devices_take_little_memory_and_little_of_the_ledger_whatever_they_say(tmp_path: Path) -> None:
    found = measure(tmp_path, devices=300, seconds=15.0, policy="twin-dpp")
    assert found["tasks_per_s"] > 0 and found["told_lines"] > 0
    assert found["edge_mb"] + found["broker_mb"] < MOST_MB
    assert found["told_bytes_a_task"] < 2000 and found["told_mb_an_hour"] < 50
