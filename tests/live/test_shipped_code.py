"""A model of one's own that no board has: it travels where both sides say so."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.live.plant import events_of, plant, until

NET = """
from torch import nn

from sizes import WIDTH


def net(shape, classes):
    channels, height, width = shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))
"""


@pytest.mark.slow
def test_a_board_takes_the_code_or_refuses_it_by_its_digest(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    here = tmp_path / "here"
    here.mkdir()
    (here / "travelling_net.py").write_text(NET, encoding="utf-8")
    (here / "sizes.py").write_text("WIDTH = 6\n", encoding="utf-8")
    (here / "plant.toml").write_text(
        "[fleet]\ndevices = 1\nchannels = 1\n[learning]\ndataset = 'digits'\nmodel = 'travelling_net:net'\n"
        "[run]\nrounds = 3\n[live]\ntime_scale = 0.2\n",
        encoding="utf-8",
    )
    shapes = {"1.weight": (6, 64), "1.bias": (6,), "3.weight": (10, 6), "3.bias": (10,)}
    save_file({name: np.full(shape, 0.1, np.float32) for name, shape in shapes.items()}, here / "initial.safetensors")
    with plant(tmp_path / "fleet") as fleet:
        fleet.edge(here / "plant.toml", "--out", fleet.run, "--initial", here / "initial.safetensors", "--ship-code")
        url = fleet.url()
        until(lambda: "ships code" in fleet.log("edge"), "the digest is shown")
        digest = fleet.log("edge").partition("digest=")[2].split()[0]
        fleet.device("wary", url, "--samples", 40, "--radio", "emulated")
        fleet.device("pinned", url, "--samples", 40, "--radio", "emulated", "--accept-code", "--code-digest", "0" * 16)
        assert fleet.ended("wary") == 2 and fleet.ended("pinned") == 2
        assert digest in fleet.last_words("wary") and digest in fleet.last_words("pinned")
        accept = ("--accept-code", "--code-digest", digest[:16])
        fleet.device("taker", url, "--samples", 40, "--radio", "emulated", *accept)
        assert fleet.ended("edge") == 0
        assert [event["name"] for event in events_of(fleet.run, "joined")] == ["taker"]
        assert events_of(fleet.run, "applied") and "code of the run is taken" in fleet.log("taker")
