"""The first thing an engineer does: the settings that docs/live.md prints, two boards with 300 samples each."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedtwin.live.device.calibration import Calibration, read_calibration
from tests.conftest import run_cli
from tests.live.plant import LIMIT_S, events_of, plant
from tests.pages import ROOT, blocks_of

SAMPLES, ROUNDS = 300, 12


def write_spectra(path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    states, patterns = chance.integers(0, 3, 2 * SAMPLES), np.random.default_rng(0).normal(size=(3, 16, 16))
    spectra = (patterns[states] + chance.normal(scale=2.0, size=(2 * SAMPLES, 16, 16))).astype(np.float32)
    half = np.split(spectra, 2), np.split(states, 2)
    np.savez(path, x_train=half[0][0], y_train=half[1][0], x_test=half[0][1], y_test=half[1][1])


def write_plant(folder: Path) -> Path:
    """As it stands on the page."""
    (text,) = (block.text for block in blocks_of(ROOT / "docs" / "live.md") if block.file == "plant.toml")
    (folder / "plant.toml").write_text(text, encoding="utf-8")
    for number, name in enumerate(("test", "press-1", "press-2")):
        write_spectra(folder / f"{name}.npz", number)
    return folder / "plant.toml"


@pytest.mark.slow
def test_the_settings_on_the_page_train_two_boards(tmp_path: Path) -> None:
    settings = write_plant(tmp_path)
    with plant(tmp_path) as made:
        made.command("edge", "edge", settings, "--out", made.run, "--rounds", ROUNDS)
        url = made.url()
        for name in ("press-1", "press-2"):
            made.device(name, url, "--data", tmp_path / f"{name}.npz")
        assert made.ended("edge", 2 * LIMIT_S) == 0, made.log("edge")
        uploads, joined = events_of(made.run, "applied"), events_of(made.run, "joined")
        assert len(uploads) >= ROUNDS and {event["device"] for event in uploads} == {0, 1}
        assert all(event["measured"]["cycles_per_sample"] > 0 and event["measured"]["goodput_bps"] > 0 for event in joined)
        (limits,) = events_of(made.run, "limits")
        assert limits["devices"] == 2
        needs = [event["measured"] for event in joined]
        assert limits["max_time_s"] >= max(need["time_s"] for need in needs)
        assert "limits of an update" in made.log("edge") and "measuring this board" in made.log("press-1")
        (began,) = events_of(made.run, "began")
        assert uploads[-1]["model_sha256"] != began["model_sha256"], "the model is another one"
    assert json.loads((made.run / "summary.json").read_text())["limits"]["devices"] == 2


def test_a_board_is_calibrated_by_a_command(tmp_path: Path) -> None:
    write_plant(tmp_path)
    done = run_cli("calibrate", "press-1", "--config", "plant.toml", "--data", "press-1.npz", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == SAMPLES and found["seconds_per_sample"] > 0.0 and "goodput_bps" not in found
    assert read_calibration(tmp_path / "press-1.calibration.json") == Calibration(**found)
