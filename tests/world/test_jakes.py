"""The channel of Jakes has the distribution of Rayleigh fading and the autocorrelation J₀(2π f_d t)."""

import math

import numpy as np
import pytest
from scipy import special, stats

from fedtwin.config import load_config
from fedtwin.draws import Purpose, streams
from fedtwin.errors import FedtwinError
from fedtwin.sim import simulate
from fedtwin.world.jakes import Settings, fading_gain, gain
from fedtwin.world.parts import Moment
from tests.conftest import mostly_slow

DEVICES, DOPPLER_HZ = 2000, 10.0
STARTS = [int(start) for start in streams(0, Purpose.CHANNEL, DEVICES)]


def powers(clock_s: float, paths: int = 64) -> np.ndarray:
    """|g|² of many devices at one second; with K paths it is exponential but for terms of 1/K."""
    settings = Settings(DOPPLER_HZ, paths)
    return np.array([fading_gain(Moment(start, n, 1, clock_s), settings) for n, start in enumerate(STARTS)])


def test_the_gain_is_exponential_with_mean_1() -> None:
    found = powers(3.7)
    assert found.mean() == pytest.approx(1.0, abs=4 / math.sqrt(DEVICES))
    assert stats.kstest(found, "expon").statistic < 0.04


@pytest.mark.parametrize("lag_s", [0.0, 0.004, 0.01, 0.02, 0.03, 0.0383, 0.05, 0.07])
def test_the_autocorrelation_is_that_of_clarke(lag_s: float) -> None:
    """Of the power |g|² it is J₀², because g is complex Gaussian; J₀ has its first zero at 2π f_d t = 2.405, t = 0.0383 s."""
    now, then = powers(1.0), powers(1.0 + lag_s)
    correlation = np.corrcoef(now, then)[0, 1]
    expected = special.j0(2.0 * math.pi * DOPPLER_HZ * lag_s) ** 2
    assert correlation == pytest.approx(expected, abs=0.08)


def test_the_sign_of_the_field_is_that_of_j0() -> None:
    """The real part of g itself, from its sinusoids, without the function under test squaring it."""
    from fedtwin.draws import uniform, word

    def field(start: int, clock_s: float) -> complex:
        total = 0j
        for k in range(16):
            angle = 2 * math.pi * (k + uniform(word(start, 2 * k))) / 16
            phase = 2 * math.pi * (DOPPLER_HZ * clock_s * math.cos(angle) + uniform(word(start, 2 * k + 1)))
            total += complex(math.cos(phase), math.sin(phase)) / 4
        return total

    first = [field(start, 1.0) for start in STARTS]
    for lag_s in (0.01, 0.03, 0.0610):
        later = [field(start, 1.0 + lag_s) for start in STARTS]
        correlation = float(np.mean([(a * b.conjugate()).real for a, b in zip(first, later, strict=True)]))
        assert correlation == pytest.approx(special.j0(2 * math.pi * DOPPLER_HZ * lag_s), abs=0.08)
    settings = Settings(DOPPLER_HZ, 16)
    assert [abs(one) ** 2 for one in first[:50]] == pytest.approx(
        [fading_gain(Moment(start, 0, 5, 1.0), settings) for start in STARTS[:50]], rel=1e-9
    )


def test_it_depends_on_the_clock_not_on_the_round() -> None:
    settings = Settings()
    assert gain(Moment(STARTS[0], 0, 1, 2.5), 1e-11, settings) == gain(Moment(STARTS[0], 0, 9, 2.5), 1e-11, settings)
    assert gain(Moment(STARTS[0], 0, 1, 2.5), 1e-11, settings) != gain(Moment(STARTS[1], 1, 1, 2.5), 1e-11, settings)


@pytest.mark.parametrize("mode", mostly_slow(["async", "sync"]))
def test_both_engines_meet_the_same_world(mode: str) -> None:
    settings = {"world.channel": "jakes", "world.channel_settings.doppler_hz": 0.5, "run.mode": mode, "run.rounds": 400}
    one, other = (simulate({**settings, "run.engine": engine}) for engine in ("readable", "compiled"))
    assert one.rounds.equals(other.rounds) and one.summary == other.summary


def test_its_settings_are_checked() -> None:
    for value in (0.0, -3.0, "fast"):
        with pytest.raises(FedtwinError, match=r"world\.channel_settings\.doppler_hz = .* is not allowed"):
            simulate(load_config(overrides={"world.channel": "jakes", "world.channel_settings.doppler_hz": value}))
