"""Every registered part of a world gets these for free."""

import pytest

from fedtwin.registry import AVAILABILITIES, CHANNELS, LOADS, SENSINGS
from fedtwin.testing import check_world
from tests.conftest import mostly_slow


@pytest.mark.parametrize("name", mostly_slow(CHANNELS, "rayleigh"))
def test_a_channel_keeps_its_word_and_fades_around_the_path_gain(name: str) -> None:
    compiled, why_not, mean = check_world(name)
    assert compiled, why_not
    assert mean == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("name", LOADS)
def test_a_load_keeps_its_word_and_leaves_about_the_devices_mean(name: str) -> None:
    compiled, why_not, mean = check_world(name)
    assert compiled, why_not
    assert mean == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("name", AVAILABILITIES)
def test_an_availability_keeps_its_word(name: str) -> None:
    compiled, why_not, mean = check_world(name)
    assert compiled, why_not
    assert 0.0 < mean <= 1.0


@pytest.mark.parametrize("name", SENSINGS)
def test_a_sensing_keeps_its_word_and_gives_about_the_devices_samples(name: str) -> None:
    compiled, why_not, mean = check_world(name)
    assert compiled, why_not
    assert mean == pytest.approx(1.0, abs=0.1)
