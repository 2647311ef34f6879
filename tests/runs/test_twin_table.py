from pathlib import Path

from fedtwin import open_run, simulate
from fedtwin.config import load_config
from fedtwin.runs import twin_table
from fedtwin.twin import DeviceTwin, Fact


def test_every_field_of_every_device_is_in_the_table(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 40}), out=tmp_path / "run")
    run = open_run(tmp_path / "run")
    for round_ in (0, 1, 25):
        twin = run.twin(round=round_)
        rows = twin_table(twin).to_pylist()
        for number, (row, device) in enumerate(zip(rows, twin.devices, strict=True)):
            assert row["device"] == number and row["mean_cost"] == device.mean_cost
            for field in DeviceTwin._fields:
                known = getattr(device, field)
                if field in ("samples", "gain", "cpu_hz", "compute_s", "train_loss"):
                    found = [row[f"{field}.{part}"] for part in Fact._fields]
                    assert found == (list(known) if known is not None else [None, None, None])
                else:
                    assert row[field] == known, field
