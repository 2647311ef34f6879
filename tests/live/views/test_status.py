"""What is said of a run as a whole: how it goes on, and why it does not."""

from typing import Any

import pytest

from fedtwin.live.views.status import status_of

RUN: dict[str, Any] = {
    "name": "main", "time_scale": 0.5, "policy": "cu-ucb", "mode": "async", "started": True, "finished": False,
    "stopped": False, "joined": 2, "start_with": 2, "round": 3, "queue_round": 5, "rounds": 9, "version": 5, "uploads": 5,
    "in_flight": 1, "energy_j": 2.0, "min_mean_samples": 10.0, "recent_s": [10.0, 20.0, 30.0], "still_since_s": 30.0,
    "warn_after_s": 60.0, "reasons": [], "trouble": None,
    "metric": {"name": "accuracy", "value": 0.9, "version": 4, "at_s": 20.0},
}  # fmt: skip


def run_of(now_s: float = 40.0, word_age_s: float | None = None, **facts: Any) -> dict[str, Any]:
    told: dict[str, Any] = status_of({**RUN, **facts}, {}, now_s=now_s, word_age_s=word_age_s)["run"]
    return told


@pytest.mark.parametrize(
    ("facts", "state", "why"),
    [
        ({}, "running", []),
        ({"finished": True, "trouble": "x"}, "finished", []),
        ({"stopped": True}, "stopped", ["fedtwin edge --resume goes on"]),
        ({"word_age_s": 30.0}, "silent", ["the edge server said nothing for 30 s"]),
        ({"started": False, "joined": 1}, "waiting", ["1 of 2 devices have joined"]),
        ({"now_s": 151.0}, "running", []),  # a long training is no standstill
        ({"now_s": 149.0, "reasons": ["declined: busy (2)"]}, "running", []),
        ({"now_s": 151.0, "reasons": ["declined: busy (2)"]}, "stands still", ["declined: busy (2)"]),
        ({"now_s": 151.0, "in_flight": 0}, "stands still", ["nobody was asked"]),
        ({"paused": True, "now_s": 900.0, "in_flight": 0}, "paused", ["fedtwin admin resume goes on"]),
        ({"ending": "fedtwin admin finish", "paused": True}, "ending", ["fedtwin admin finish"]),
        ({"trouble": "the broker's disk is full"}, "stands still", ["the broker's disk is full"]),
    ],
)
def test_how_it_goes_on(facts: dict[str, Any], state: str, why: list[str]) -> None:
    told = run_of(**facts)
    assert (told["state"], told["why"]) == (state, why)


def test_ages_and_rates_are_wall_time() -> None:
    told = run_of()
    assert told["last_upload_age_s"] == 5.0 and told["metric"]["age_s"] == 10.0
    assert told["uploads_per_min"] == pytest.approx(3 * 60.0 / 15.0), "all that is kept, since the first of them"
    assert run_of(now_s=145.0)["uploads_per_min"] == 1.0, "one within the last minute"
    assert run_of(now_s=1000.0)["uploads_per_min"] == 0.0
