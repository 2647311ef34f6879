"""Made-up policies through the whole engine: compiled, from the cache, interrupted, moved to another folder and resumed."""

import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from fedtwin.config import Config, load_config, replace_settings
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.sim import resume, simulate
from fedtwin.sim.fast import compile as fast_compile
from tests.compiling.programs import Program, Writer

ROUNDS = 150


class StoppedError(Exception):
    """In place of a kill."""


def played(config: Config, **options: Any) -> Any:
    """The rounds, or the sentence that a policy which fails ends with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        try:
            return simulate(config, **options).rounds.to_pydict()
        except FedtwinError as error:
            return str(error).partition(" (")[0]


def whole_way(program: Program, tmp_path: Path) -> bool:
    """Whether the policy was compiled. Nothing may depend on how, where, or in how many pieces it is run."""
    name = program.write(tmp_path / "code")
    (tmp_path / "code" / "mine.toml").write_text(f"[policy]\nname = '{name}'\n[run]\nrounds = {ROUNDS}\n", encoding="utf-8")
    config = load_config(tmp_path / "code" / "mine.toml", {"run.engine": "readable"})
    expected = played(config)
    understood = fast_compile.obstacle_to_compiling(fast_compile.exchanged_in(config)) is None
    again = replace_settings(config, {"run.engine": "compiled" if understood else "auto"})
    assert played(again) == expected
    fast_compile._made.clear()
    assert played(again) == expected, "read from the cache"
    if isinstance(expected, str):
        return understood

    def stop(done: int) -> None:
        if done > ROUNDS // 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        simulate(again, out=tmp_path / "run", progress=stop)
    shutil.rmtree(tmp_path / "code")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert resume(tmp_path / "moved").rounds.to_pydict() == expected, "moved and resumed"
    return understood


@pytest.mark.slow
@pytest.mark.parametrize("number", range(60))
def test_made_up_policies_all_the_way(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTWIN_CACHE", str(tmp_path / "cache"))
    whole_way(Writer(random.Random(1000 + number)).program(), tmp_path)


@pytest.mark.slow
def test_one_made_up_policy_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTWIN_CACHE", str(tmp_path / "cache"))
    source = "from helper_module import HELPED, helped\nfrom fedtwin.policies import Policy\n"
    source += "def score(view, knobs):\n    return helped(view.queue) * -HELPED\nPOLICY = Policy(score, power='max')\n"
    assert whole_way(Program(source, "HELPED = 1.5\ndef helped(x):\n    return x * HELPED\n"), tmp_path)
