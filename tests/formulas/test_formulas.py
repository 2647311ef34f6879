"""The formulas against their definitions in the paper."""

import math

import pytest

from fedtwin.config import Config
from fedtwin.formulas.compute import compute_energy_j, compute_time_s
from fedtwin.formulas.cost import cost, within
from fedtwin.formulas.rate import path_gain, upload_energy_j, upload_time_s
from fedtwin.formulas.terms import terms_of

TERMS = terms_of(Config())


def test_noise_is_in_watts() -> None:
    assert pytest.approx(10**-18.4) == TERMS.noise_w


def test_path_loss_at_one_kilometre_and_its_slope() -> None:
    assert 10 * math.log10(path_gain(1000.0)) == pytest.approx(-128.1)
    assert 10 * math.log10(path_gain(100.0) / path_gain(1000.0)) == pytest.approx(37.6)


def test_upload_time_and_energy_from_the_rate() -> None:
    rate_bps = 1e6 * math.log2(1 + 0.5 * 1e-12 / TERMS.noise_w)
    upload_s = upload_time_s(TERMS, 1e-12, 0.5)
    assert upload_s == pytest.approx(8e6 / rate_bps)
    assert upload_energy_j(0.5, upload_s) == pytest.approx(0.5 * 8e6 / rate_bps)


def test_compute_time_energy_and_cost() -> None:
    assert compute_time_s(TERMS, 2e9, 80) == pytest.approx(80 * 5e6 / 2e9)
    assert compute_energy_j(TERMS, 2e9, 80) == pytest.approx(2e-28 * (80 * 5e6 / 2e9) * 2e9**3)
    assert cost(TERMS, 0.4, 0.6) == pytest.approx(0.5 * 0.4 / 1.0 + 0.5 * 0.6 / 1.2)
    assert within(1.0 + 1e-12, 1.0) and not within(1.0 + 1e-6, 1.0)
