"""Devices with quantities of their own: drawn between bounds, or from the user's file."""

from pathlib import Path

import numpy as np
import pytest

from fedtwin import simulate
from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import Quantities, terms_of
from fedtwin.world import fleet
from fedtwin.world.fleet import fleet_columns, make_fleet
from tests.conftest import mostly_slow

RANGES = {
    "max_power_w": (0.1, 1.0),
    "cycles_per_sample": (1e6, 9e6),
    "update_bits": (1e6, 8e6),
    "max_time_s": (0.5, 2.0),
    "max_energy_j": (0.3, 3.0),
    "samples_spread": (0.0, 0.5),
}


def with_ranges(**more: object) -> Config:
    return load_config(overrides={**{f"fleet.{name}": list(pair) for name, pair in RANGES.items()}, **more})


def test_they_are_uniform_between_their_bounds_and_independent() -> None:
    columns = fleet_columns(with_ranges(**{"fleet.devices": 4000}))
    found = [getattr(columns, name) for name in RANGES]
    for column, (least, most) in zip(found, RANGES.values(), strict=True):
        assert least <= column.min() < column.max() <= most
        assert column.mean() == pytest.approx((least + most) / 2, abs=0.03 * (most - least))
    correlations = np.corrcoef([*found, columns.cpu_hz_mean, columns.samples])
    assert abs(correlations - np.eye(len(correlations))).max() < 0.07


def test_nothing_that_was_drawn_before_moves_and_a_larger_fleet_begins_alike() -> None:
    plain, own = fleet_columns(Config()), fleet_columns(with_ranges())
    for name in fleet.Drawn._fields:
        assert (getattr(plain, name) == getattr(own, name)).all()
    larger = with_ranges(**{"fleet.devices": 500})
    assert make_fleet(larger)[:30] == make_fleet(with_ranges())


def test_without_bounds_everybody_has_the_configured_value() -> None:
    config = load_config(overrides={"radio.max_power_w": 0.3, "objective.max_time_s": 0.9})
    terms, columns = terms_of(config), fleet_columns(config)
    for device in make_fleet(config):
        assert [getattr(device, name) for name in Quantities._fields] == [getattr(terms, name) for name in Quantities._fields]
        assert device.samples_spread == 0.0
    assert not columns.has_own(terms) and fleet_columns(with_ranges()).has_own(terms)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("fleet.max_power_w", [1.0, 0.1], "the most, 0.1, is below the least, 1"),
        ("fleet.max_power_w", [0.0, 0.1], "greater than 0"),
        ("fleet.update_bits", [1e6], "fleet.update_bits"),
        ("fleet.max_time_s", True, "fleet.max_time_s"),
        ("fleet.samples_spread", 1.0, "less than or equal to 0.99"),
    ],
)
def test_bounds_that_are_none_are_one_sentence(name: str, value: object, sentence: str) -> None:
    with pytest.raises(FedtwinError) as caught:
        load_config(overrides={name: value})
    assert sentence in str(caught.value) and name in str(caught.value)


def test_a_configuration_without_them_keeps_its_hash() -> None:
    assert config_hash(Config()) == "af9a0d09350b1164"
    assert config_hash(load_config(overrides={"fleet.max_power_w": 1.0})) != config_hash(Config())


CSV = "distance_m,samples,cpu_hz,max_power_w,max_time_s\n" + "".join(
    f"{40 + 10 * n},{70 + n},{2e9},{0.001 if n % 2 else 0.5},{1.0 + n}\n" for n in range(8)
)


def in_a_file(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "fleet.csv").write_text(CSV)
    return {"fleet.file": str(tmp_path / "fleet.csv"), "fleet.channels": 3, "run.rounds": 150}


@pytest.mark.parametrize("engine", ["readable", "compiled"])
@pytest.mark.parametrize("power", mostly_slow(["optimal", "max"], "optimal"))
def test_the_power_in_a_file_is_obeyed(tmp_path: Path, engine: str, power: str) -> None:
    run = simulate({**in_a_file(tmp_path), "run.engine": engine, "policy.power": power})
    assert run.devices["max_power_w"].to_pylist() == [0.5, 0.001] * 4
    assert run.devices["cycles_per_sample"].to_pylist() == [5e6] * 8, "what has no column is as configured"
    sent = [row for row in run.rounds.to_pylist() if not row["declined"]]
    assert all(row["power_w"] <= (0.001 if row["device"] % 2 else 0.5) for row in sent)
    assert any(row["power_w"] == 0.001 for row in sent) and any(row["power_w"] > 0.001 for row in sent)


def test_bounds_beside_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"update_bits = .* is for drawn devices: those of the file .* have a column for it"):
        load_config(overrides={**in_a_file(tmp_path), "fleet.update_bits": [1e6, 2e6]})
