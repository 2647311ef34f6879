"""What is damaged in a run's folder while its edge server is down, on the real processes: said, and repaired when asked to."""

from pathlib import Path

import pytest

from tests.conftest import run_cli
from tests.live.plant import events_of, plant, write_model

EMULATED = ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)


def test_repair_goes_with_resume(tmp_path: Path) -> None:
    done = run_cli("edge", "--out", str(tmp_path / "run"), "--repair")
    assert done.returncode == 2 and "error: --repair goes with --resume DIR: a new run has nothing to repair." in done.stderr


@pytest.mark.slow
def test_a_flipped_byte_in_the_newest_model_is_one_sentence_and_repaired(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        model = write_model(tmp_path / "initial.safetensors")
        new = ("--out", fleet.run, "--initial", model, "--rounds", 400, "--time-scale", 0.2)
        fleet.edge(*new, fleet__devices=2, fleet__channels=2, live__heartbeat_s=0.3)
        url = fleet.url()
        for number in range(2):
            fleet.device(f"device-{number}", url, *EMULATED)
        fleet.wait_for("applied", count=5)
        assert fleet.stopped("edge") == 0
        newest = max((fleet.run / "models").glob("model-*"))
        data = bytearray(newest.read_bytes())
        data[-1] ^= 0x40
        newest.write_bytes(data)
        applied = len(events_of(fleet.run, "applied"))

        fleet.edge("--resume", fleet.run)
        assert fleet.ended("edge") == 2
        said = fleet.log("edge").splitlines()[-1]
        assert f"{newest.name}' is damaged: it is not what the ledger says was written; intact are lines 1 to" in said
        assert "--repair goes back there" in said and "Traceback" not in fleet.log("edge")

        fleet.edge("--resume", fleet.run, "--repair")
        repaired = fleet.wait_for("repaired")
        assert repaired["version"] == applied - 1 and repaired["uploads"] == 1
        fleet.wait_for("applied", count=applied + 5)
        assert not events_of(fleet.run, "quarantined"), "nobody is blamed for it"
        assert fleet.stopped("edge") == 0
