"""What a world of the user's own has promised is looked at while a run goes on, in both engines alike."""

from pathlib import Path

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.sim import simulate
from tests.conftest import mostly_slow

MODULE = """
import functools
import numpy
from fedtwin.world.parts import Availability, Channel, Load, Sensing
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

RNG = numpy.random.default_rng(1)

@functools.cache
def drawn(device, round_):
    return float(RNG.uniform(0.5, 1.0))

@functools.cache
def computed(device, round_):
    return 1.0 + device % 3

FADES = Channel(lambda at, path_gain, settings: path_gain * drawn(at.device, at.round))
SLOWS = Load(lambda at, processor, settings: processor.mean_hz * drawn(at.device, at.round))
HIDES = Availability(lambda at, settings: drawn(at.device, at.round) > 0.6)
SENSES = Sensing(lambda at, sensor, settings: 1 + sensor.mean * drawn(at.device, at.round) // 1.0)
TABLE = Channel(lambda at, path_gain, settings: path_gain * computed(at.device, at.round))
REMEMBERS, NEGATIVE, HUGE, SEVERAL = Channel(remembers), Channel(negative_once), Channel(huge), Channel(several)
"""


def run(folder: Path, name: str, **settings: object) -> None:
    (folder / "mine.py").write_text(MODULE)
    simulate({"run.rounds": 120, "world.channel": f"mine:{name}", "code.folder": str(folder), **settings})


def test_a_channel_that_remembers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"world\.channel = 'mine:REMEMBERS' changes something of its own while it runs"):
        run(tmp_path, "REMEMBERS", **{"run.engine": "readable"})


@pytest.mark.parametrize("name", ["channel:FADES", "load:SLOWS", "availability:HIDES", "sensing:SENSES"])
def test_memoised_chance_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    part, _, attribute = name.partition(":")
    words = rf"^world\.{part} = 'mine:{attribute}' answers otherwise when it is asked again of device \d+ in round \d+, so its "
    with pytest.raises(FedtwinError, match=words):
        simulate({"run.rounds": 40, f"world.{part}": f"mine:{attribute}", "code.folder": str(tmp_path)})


def test_a_channel_may_keep_what_depends_on_its_arguments_only(tmp_path: Path) -> None:
    run(tmp_path, "TABLE")


@pytest.mark.parametrize("engine", mostly_slow(["readable", "compiled"], "readable"))
def test_a_gain_that_is_none_is_found_where_the_link_is_sounded(tmp_path: Path, engine: str) -> None:
    with pytest.raises(FedtwinError, match=r"world\.channel = 'mine:NEGATIVE' failed in round 77 for device 7: it gave -"):
        run(tmp_path, "NEGATIVE", **{"run.engine": engine, "twin.gain": "current", "policy.name": "twin-dpp"})


@pytest.mark.parametrize("name", ["HUGE", "SEVERAL"])
def test_what_is_no_gain_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(FedtwinError, match=r"must give a finite number above 0, from 1e-60 to 1e\+60"):
        run(tmp_path, name, **{"run.engine": "readable"})
