"""What a world of the user's own has promised is looked at while a run goes on, in both engines alike."""

from pathlib import Path

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.sim import simulate
from tests.conftest import mostly_slow

MODULE = """
from fedtwin.world.parts import Channel
SEEN = {}

def remembers(at, path_gain, settings):
    key = (at.device, at.round)
    if key not in SEEN:
        SEEN[key] = 1.0 + len(SEEN) % 5
    return path_gain * SEEN[key]

def negative_once(at, path_gain, settings):
    return -path_gain if at.device == 7 and at.round == 77 else path_gain

def huge(at, path_gain, settings):
    return 10 ** 400

def several(at, path_gain, settings):
    import numpy
    return numpy.ones(2)

REMEMBERS, NEGATIVE, HUGE, SEVERAL = Channel(remembers), Channel(negative_once), Channel(huge), Channel(several)
"""


def run(folder: Path, name: str, **settings: object) -> None:
    (folder / "mine.py").write_text(MODULE)
    simulate({"run.rounds": 120, "world.channel": f"mine:{name}", "code.folder": str(folder), **settings})


def test_a_channel_that_remembers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"world\.channel = 'mine:REMEMBERS' changes something of its own while it runs"):
        run(tmp_path, "REMEMBERS", **{"run.engine": "readable"})


@pytest.mark.parametrize("engine", mostly_slow(["readable", "compiled"], "readable"))
def test_a_gain_that_is_none_is_found_where_the_link_is_sounded(tmp_path: Path, engine: str) -> None:
    with pytest.raises(FedtwinError, match=r"world\.channel = 'mine:NEGATIVE' failed in round 77 for device 7: it gave -"):
        run(tmp_path, "NEGATIVE", **{"run.engine": engine, "twin.gain": "current", "policy.name": "twin-dpp"})


@pytest.mark.parametrize("name", ["HUGE", "SEVERAL"])
def test_what_is_no_gain_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(FedtwinError, match=r"must give a finite number above 0, from 1e-60 to 1e\+60"):
        run(tmp_path, name, **{"run.engine": "readable"})
