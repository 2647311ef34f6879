from collections import Counter

import pytest

from fedtwin.draws import Purpose, stream
from fedtwin.world.parts import Moment, Sensor
from fedtwin.world.uniform_sensing import samples

ROUNDS = 20_000


def drawn(sensor: Sensor, rounds: int = ROUNDS) -> list[float]:
    start = stream(1, int(Purpose.SENSING), 3)
    return [samples(Moment(start, 3, round_, 0.5 * round_), sensor, ()) for round_ in range(rounds)]


@pytest.mark.parametrize(("mean", "spread", "reach"), [(10, 0.3, 3), (100, 0.29, 29), (7, 0.99, 6), (10, 0.39, 3)])
def test_every_whole_number_within_the_spread_is_as_likely(mean: int, spread: float, reach: int) -> None:
    found = Counter(drawn(Sensor(mean, spread)))
    assert sorted(found) == list(range(mean - reach, mean + reach + 1))
    expected = ROUNDS / (2 * reach + 1)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in found.values())


@pytest.mark.parametrize(("mean", "spread"), [(85, 0.0), (1, 0.99), (9, 0.1)])
def test_without_room_it_is_the_number_itself(mean: int, spread: float) -> None:
    assert set(drawn(Sensor(mean, spread), 100)) == {mean}
