import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fedtwin.config import config_hash, load_config
from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.errors import FedtwinError
from fedtwin.formulas.rate import path_gain
from fedtwin.sim import simulate
from fedtwin.world.fleet import make_fleet


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fleet.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("header", "cells", "distance_m", "gain"),
    [
        ("x_m,y_m", "30,40", 50.0, path_gain(50.0)),
        ("distance_m", "50", 50.0, path_gain(50.0)),
        ("path_gain", "1e-9", math.nan, 1e-9),
        ("path_gain_db", "-90", math.nan, 1e-9),
    ],
)
def test_four_ways_to_say_where_a_device_is(tmp_path: Path, header: str, cells: str, distance_m: float, gain: float) -> None:
    path = write(tmp_path, f"{header},samples,cpu_hz\n{cells},80,2e9\n{cells},90,1e9\n")
    config = load_config(overrides={"fleet.file": str(path), "fleet.channels": 1})
    assert config.fleet.devices == 2
    first, second = make_fleet(config)
    assert (first.distance_m, first.path_gain) == pytest.approx((distance_m, gain), nan_ok=True)
    assert (first.samples, second.samples, first.cpu_hz_mean, second.cpu_hz_mean) == (80, 90, 2e9, 1e9)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("distance_m,cpu_hz\n50,2e9\n", "has no column samples"),
        ("samples,cpu_hz\n50,2e9\n", "has no column a position"),
        ("distance_m,samples\n50,2\n", "has no column cpu_hz"),
        ("", "has no column samples, nor cpu_hz, nor a position"),
        ("distance_m,samples,cpu_hz\n", "lists no device"),
        ("distance_m,distance_m,samples,cpu_hz\n50,50,80,2e9\n", "has a column twice"),
        ("distance_m,path_gain,samples,cpu_hz\n50,1e-9,80,2e9\n", "in 2 ways"),
        ("distance_m,samples,cpu_hz\n50,80,2e9\n\n0,80,2e9\n", "line 4: distance_m"),
        ("distance_m,samples,cpu_hz\n50,80,2e9\n-1,80,2e9\n", "line 3: distance_m = '-1'"),
        ("distance_m,samples,cpu_hz\n50,80.5,2e9\n", "line 2: samples = '80.5' is not a whole number"),
        ("distance_m,samples,cpu_hz\n50,80\n", "line 2: cpu_hz = None"),
        ("distance_m,samples,cpu_hz\n50,nan,1e9\n", "line 2: samples = 'nan'"),
        ("x_m,y_m,samples,cpu_hz\n0,0,80,1e9\n", "stands on the server"),
        (
            "distance_m,samples,cpu_hz,max_power_w\n50,80,1e9,0\n",
            "line 2: max_power_w = '0' is not a number from 1e-40 to 1e+40",
        ),
        ("distance_m,samples,cpu_hz\n5_0,80,1e9\n", "line 2: distance_m = '5_0' is not a number"),
        ("distance_m,samples,cpu_hz,max_time_s\n50,80,1e9,\n", "line 2: max_time_s = '' is not a number"),
        (
            "distance_m,samples,cpu_hz,samples_spread\n50,80,1e9,1\n",
            "line 2: samples_spread = '1' is not a number from 0 to 0.99",
        ),
        ("distance_m,samples,cpu_hz,power_w\n50,80,1e9,1\n", "no column power_w is known (did you mean max_power_w?)"),
        ("distance_m,samples,cpu_hz,colour\n50,80,1e9,red\n", "allowed are samples, cpu_hz, name"),
        ("distance_m,samples,cpu_hz,\n50,80,1e9,1\n", "column 4 has no name"),
        ("distance_m,sample,cpu_hz\n50,80,1e9\n", "no column sample is known (did you mean samples?)"),
        ("distance_m,samples,cpu_hz,x_m\n50,80,1e9,3\n", "x_m without y_m"),
        ("distance_m,samples,cpu_hz\n50,80,1e9,7\n", "line 2 has more cells than the header"),
        ("name,distance_m,samples,cpu_hz\npress,50,80,1e9\n,50,80,1e9\n", "line 3: name = '' is empty"),
        ("name,distance_m,samples,cpu_hz\na,50,80,1e9\nb,50,80,1e9\na,50,80,1e9\n", "line 4: name = 'a' stands in line 2 too"),
        ("name,device,distance_m,samples,cpu_hz\na,b,50,80,1e9\n", "name and device: keep one"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(FedtwinError) as caught:
        read_fleet_csv(write(tmp_path, text))
    assert sentence in str(caught.value) and "fleet.file" in str(caught.value)


def test_the_number_of_devices_must_agree_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "distance_m,samples,cpu_hz\n50,80,2e9\n")
    with pytest.raises(FedtwinError, match=r"devices = 3, but the file .* lists 1"):
        load_config(overrides={"fleet.file": str(path), "fleet.devices": 3, "fleet.channels": 1})


def test_a_file_is_found_beside_its_configuration_and_hashed_by_content(tmp_path: Path) -> None:
    write(tmp_path, "distance_m,samples,cpu_hz\n50,80,2e9\n")
    (tmp_path / "c.toml").write_text("[fleet]\nfile = 'fleet.csv'\nchannels = 1\n")
    first = config_hash(load_config(tmp_path / "c.toml"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere, "distance_m,samples,cpu_hz\n50,80,2e9\n")
    (elsewhere / "c.toml").write_text("[fleet]\nfile = 'fleet.csv'\nchannels = 1\n")
    assert config_hash(load_config(elsewhere / "c.toml")) == first
    write(elsewhere, "distance_m,samples,cpu_hz\n51,80,2e9\n")
    assert config_hash(load_config(elsewhere / "c.toml")) != first


@pytest.mark.parametrize(("column", "engine"), [("name", "compiled"), ("name", "readable"), ("device", "readable")])
def test_the_names_of_devices_reach_the_records(tmp_path: Path, column: str, engine: str) -> None:
    path = write(tmp_path, f"{column},distance_m,samples,cpu_hz\n press-1 ,50,80,2e9\nöfen,70,90,1e9\n7,90,90,1e9\n")
    settings = {"fleet.file": str(path), "fleet.channels": 2, "run.rounds": 10, "run.engine": engine}
    result = simulate(load_config(overrides=settings), out=tmp_path / "run")
    on_disk = pq.read_table(tmp_path / "run" / "devices.parquet")
    assert on_disk["name"].to_pylist() == ["press-1", "öfen", "7"] and on_disk.equals(result.devices)


def test_a_fleet_without_names_has_no_column_for_them(tmp_path: Path) -> None:
    path = write(tmp_path, "distance_m,samples,cpu_hz\n50,80,2e9\n")
    config = load_config(overrides={"fleet.file": str(path), "fleet.channels": 1, "run.rounds": 5})
    assert "name" not in simulate(config).devices.column_names
