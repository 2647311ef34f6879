"""The devices of a run folder, also of one that was written before they had quantities of their own."""

import hashlib
from pathlib import Path

import pyarrow.parquet as pq

from fedtwin import open_run, simulate
from fedtwin.formulas.terms import Quantities

OWN = [*Quantities._fields, "samples_spread"]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    result = simulate({"run.rounds": 20, "fleet.update_bits": [1e6, 9e6]}, out=tmp_path / "run")
    devices = open_run(tmp_path / "run").devices
    assert devices.equals(result.devices) and len(set(devices["update_bits"].to_pylist())) == 30


def test_an_old_folder_has_the_configured_quantities(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = simulate({"run.rounds": 20, "radio.max_power_w": 0.5}, out=folder)
    path, sums = folder / "devices.parquet", folder / "SHA256SUMS"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    pq.write_table(result.devices.drop_columns(OWN), path)
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))
    run = open_run(folder)
    assert run.devices.equals(result.devices) and run.devices["max_power_w"].to_pylist() == [0.5] * 30
    assert run.twin().devices[3].samples.value == result.devices["samples"][3].as_py()
