"""The run's normalisation is of all who tell of as many channels as most do."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedtwin.live.run.gathering import Stray, gathered, strays
from fedtwin.live.wire.protocol import Channels, Moments


def told(count: float, *means: float) -> Moments:
    return Moments(samples=Channels(count=count, mean=list(means), squares=[0.0] * len(means)))


def test_who_has_other_channels_than_most_is_left_out() -> None:
    found = gathered({"liar": told(1e9, 500.0), "a": told(1.0, 0.0, 4.0), "b": told(3.0, 4.0, 4.0), "command": None})
    assert found is not None and found[1] == ["a", "b"] and found[0]["mean"] == [3.0, 4.0]
    assert found[0]["std"] == pytest.approx([3.0**0.5, 1.0])
    assert gathered({"command": None}) is None


def test_numbers_of_a_regression_are_gathered_too() -> None:
    one = Moments(
        samples=Channels(count=2.0, mean=[0.0], squares=[2.0]), targets=Channels(count=1.0, mean=[10.0], squares=[0.0])
    )
    two = one.model_copy(update={"targets": Channels(count=1.0, mean=[20.0], squares=[0.0])})
    found = gathered({"a": one, "b": two})
    assert found is not None and found[0] == {"mean": [0.0], "std": [1.0], "target_mean": [15.0], "target_std": [5.0]}


@pytest.mark.parametrize("changes", [{"squares": [1.0, 2.0]}, {"mean": [], "squares": []}, {"count": 0.0}, {"squares": [-1.0]}])
def test_moments_that_cannot_be_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Channels(**{"count": 1.0, "mean": [0.0], "squares": [0.0], **changes})


def of(samples: Any, features: list[str] | None = None) -> Moments:
    """What a device with these samples tells, (count, features)."""
    rows = np.asarray(samples, np.float64)
    squares = ((rows - rows.mean(0)) ** 2).sum(0)
    return Moments(samples=Channels(count=len(rows), mean=rows.mean(0).tolist(), squares=squares.tolist()), features=features)


def boards(count: int, **features: tuple[float, float]) -> dict[str, Any]:
    """Samples of every board, with these means and deviations."""
    chance = np.random.default_rng(0)
    middle, spread = np.array(list(features.values())).T
    return {f"b{number}": chance.normal(middle, spread, (200, len(features))) for number in range(count)}


WEATHER = {"pressure": (1.01e5, 30.0), "temperature": (20.0, 5.0), "rain": (0.0, 0.0)}


@pytest.mark.parametrize("count", [3, 4, 9])
def test_a_board_in_another_unit_than_most_is_found(count: int) -> None:
    named = list(WEATHER)
    assert strays({name: of(rows, named) for name, rows in boards(count, **WEATHER).items()}) == []
    for feature, times in ((0, 0.001), (0, 1e30), (1, 1e4), (1, -1e5)):
        there = boards(count, **WEATHER)
        there["b1"][:, feature] *= times
        (found,) = strays({name: of(rows, named) for name, rows in there.items()})
        assert (found.names, found.feature) == (("b1",), named[feature]) and found.times > 1e3
        (nameless,) = strays({name: of(rows) for name, rows in there.items()})
        assert nameless.feature == f"channel {feature}"


def test_of_two_boards_nobody_knows_which_is_wrong() -> None:
    there = boards(2, **WEATHER)
    assert strays({name: of(rows) for name, rows in there.items()}) == [] == strays({"b0": of(there["b0"])})
    there["b0"][:, 1] *= 1e6
    (found,) = strays({name: of(rows) for name, rows in there.items()})
    assert found.names == ("b0", "b1") and found.feature == "channel 1"


def test_a_feature_that_few_have_is_no_other_unit() -> None:
    """Where most have one and the same number, whatever a board has is far from it."""
    there = boards(4, **WEATHER)
    there["b2"][:, 2] = 7.0 * np.arange(200)
    for rows in there.values():
        rows[:, 1] = 0.1 + 1e-17 * np.arange(200)
    there["b3"][:, 1] = np.arange(200) / 20.0
    assert strays({name: of(rows) for name, rows in there.items()}) == []


def test_targets_of_a_regression_are_held_against_each_other_too() -> None:
    there = boards(3, one=(0.0, 1.0), target=(0.0, 1.0))
    there["b2"][:, 1] *= 1e5
    told = {name: of(rows[:, :1]).model_copy(update={"targets": of(rows[:, 1:]).samples}) for name, rows in there.items()}
    assert [(one.names, one.feature) for one in strays(told)] == [(("b2",), "target 0")]
    assert isinstance(strays(told)[0], Stray)
