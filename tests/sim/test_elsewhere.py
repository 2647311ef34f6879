"""Numbers that would differ from process to process are refused; they show in a second one."""

from pathlib import Path
from typing import Any

import pytest

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.processes import asked_elsewhere
from fedtwin.sim import elsewhere, simulate

CODE = """
import random
from fedtwin.policies import Policy
from fedtwin.world.parts import Channel


def score(view, knobs):
    return random.Random(hash((WORD, view.device, view.round))).random()


def gain(at, path_gain, settings):
    return path_gain * (1.0 + random.Random(hash((WORD, at.device, at.round))).random())


POLICY, CHANNEL = Policy(score, power="max"), Channel(gain)
"""


def run(folder: Path, word: str, **settings: Any) -> None:
    (folder / "mine.py").write_text(CODE.replace("WORD", word))
    simulate({"run.rounds": 30, "code.folder": str(folder), **settings}, records=False)


@pytest.mark.parametrize("setting", ["policy.name", "world.channel"])
def test_the_hash_of_a_text_is_refused(tmp_path: Path, setting: str) -> None:
    name = "mine:POLICY" if setting == "policy.name" else "mine:CHANNEL"
    with pytest.raises(FedtwinError, match=rf"^{setting} = '{name}' gives other numbers in another process: .* hash, id"):
        run(tmp_path, "'tie'", **{setting: name})


def test_the_hash_of_numbers_is_the_same_and_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def counted(*given: Any) -> str | None:
        asked.append(given)
        return ask(*given)

    ask = asked_elsewhere
    monkeypatch.setattr(elsewhere, "asked_elsewhere", counted)
    for seed in range(2):
        run(tmp_path, "7", **{"policy.name": "mine:POLICY", "run.seed": seed})
    assert len(asked) == 1


def test_a_second_process_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.processes.sys.executable", "/bin/false")
    with pytest.warns(FedtwinWarning, match=r"policy\.name = 'mine:POLICY' could not be run in a second process"):
        run(tmp_path, "8", **{"policy.name": "mine:POLICY"})


def test_what_mentions_nothing_of_a_process_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "asked_elsewhere", None)
    (tmp_path / "mine.py").write_text(CODE.replace("hash", "str").replace("WORD", "7"))
    simulate({"run.rounds": 30, "code.folder": str(tmp_path), "policy.name": "mine:POLICY"}, records=False)
