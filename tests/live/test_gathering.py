"""A real edge server is killed while its aggregation has gathered something: it goes on with the same state."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.chaos import Fleet, Mix, check


def fedbuff_by_hand() -> Mix:
    changes: list[Any] = []

    def mix(model: Any, start: Any, upload: Any, staleness: int) -> Any:
        changes.append((staleness + 1.0) ** -0.5 * (upload - start))
        if len(changes) < 3:
            return model
        mixed = (model + 0.6 / 3 * sum(changes)).astype(np.float32)
        changes.clear()
        return mixed

    return mix


def momentum_by_hand() -> Mix:
    speed: Any = np.float32(0.0)

    def mix(model: Any, start: Any, upload: Any, staleness: int) -> Any:  # noqa: ARG001
        nonlocal speed
        speed = 0.75 * speed + (upload - start)
        return (model + 0.25 * speed).astype(np.float32)

    return mix


@pytest.mark.parametrize(
    ("settings", "mix"),
    [
        ({"learning.aggregation": "fedbuff", "learning.buffer_size": 3}, fedbuff_by_hand()),
        pytest.param(
            {"learning.aggregation": "tests.live.gathering_rule:RULE", "learning.aggregation_settings.momentum": 0.75},
            momentum_by_hand(),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["fedbuff", "a rule of one's own"],
)
def test_a_killed_edge_server_goes_on_with_what_was_gathered(tmp_path: Path, settings: dict[str, Any], mix: Mix) -> None:
    fleet = Fleet(tmp_path, rounds=90, devices=3, seed=2, **settings)
    try:
        for _ in range(2):
            fleet.wait_for_uploads(22)
            fleet.kill("edge")
            fleet.revive()
        fleet.torture(0, 200.0)
    finally:
        fleet.close()
    counts = check(tmp_path, mix)
    assert counts["resumed"] >= 2 and counts["applied"] >= 60
    assert len(list((tmp_path / "run" / "models").iterdir())) < 60
