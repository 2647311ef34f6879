"""The run's normalisation is of all who tell of as many channels as most do."""

import pytest
from pydantic import ValidationError

from fedtwin.live.run.gathering import gathered
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
