"""Golden runs: the first decisions of every scheme as they were when the numbers were last meant to change.

A change that moves them is marked in the CHANGELOG, and ``python -m tests.sim.test_golden`` writes the new ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fedtwin.config import load_config
from fedtwin.registry import POLICIES, SCHEMES
from fedtwin.sim import simulate

GOLDEN = Path(__file__).with_name("golden.json")
NAMES = [*SCHEMES, *(name for name in POLICIES if name not in {scheme.policy for scheme in SCHEMES.values()})]
EXACT = ("round", "arrived", "device", "staleness", "declined", "decline_reason")
CLOSE = ("clock_s", "gain", "cpu_hz", "power_w", "cost", "index", "total_queue")


def first_decisions(name: str) -> list[list[Any]]:
    config = load_config(overrides={"policy.name": name, "run.rounds": 60, "run.seed": 11, "objective.max_time_s": 0.8})
    return [[row[column] for column in EXACT + CLOSE] for row in simulate(config).rounds.to_pylist()]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_decisions_are_as_they_were(name: str) -> None:
    golden, now = json.loads(GOLDEN.read_text())[name], first_decisions(name)
    assert [row[: len(EXACT)] for row in now] == [row[: len(EXACT)] for row in golden]
    for row, expected in zip(now, golden, strict=True):
        for value, was in zip(row[len(EXACT) :], expected[len(EXACT) :], strict=True):
            assert value == (None if was is None else pytest.approx(was, rel=1e-12, abs=1e-12))


def test_every_policy_has_a_golden_run() -> None:
    covered = {load_config(overrides={"policy.name": name}).policy.name for name in json.loads(GOLDEN.read_text())}
    assert covered == set(POLICIES)


if __name__ == "__main__":
    rows = {name: first_decisions(name) for name in NAMES}
    text = ",\n".join(f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows[name]) + "]" for name in NAMES)
    GOLDEN.write_text("{\n" + text + "}\n")
