"""Made-up policies: whatever is compiled has the bits of what is written, and its stamp sees every change."""

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from fedtwin.compiling import compiled_as, stamp, why_not
from fedtwin.config import Config, config_hash, load_config
from fedtwin.sim.fast import steps
from fedtwin.sim.fast.tournament import lead_of_policy
from fedtwin.usercode import load_object
from tests.compiling.programs import Program, outcome, programs, random_knobs, random_view

LEAST_SHARE = 0.4
VIEWS = 40


def configured(program: Program, folder: Path) -> Config:
    name = program.write(folder)
    (folder / "mine.toml").write_text(f"[policy]\nname = '{name}'\n", encoding="utf-8")
    return load_config(folder / "mine.toml")


def fuzz(examples: int, number: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, derandomize=False, suppress_health_check=quiet)
    @given(programs(), st.integers(0, 2**32))
    def check(program: Program, draws: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = configured(program, Path(folder))
            functions, name = functions_of(config), config_hash(config)
            stamps = {}
            counts["all"] += 1
            for function, stand_in in functions.items():
                if why_not(function, stand_in) is None:
                    stamps[stand_in] = stamp(function)
                    compare(function, stand_in, random.Random(draws), program)
            counts["compiled"] += steps.score_of_policy in stamps
            other = configured(program.with_other_constant(), Path(folder))
            assert config_hash(other) != name
            for function, stand_in in functions_of(other).items():
                assert stamps.get(stand_in) != stamp(function)

    check()
    return counts


def functions_of(config: Config) -> dict[Any, Any]:
    """Score and lead, with the stand-ins whose places they take."""
    score = load_object("policy.name", "users_policy:score", config.code.folder)
    lead = load_object("policy.name", "users_policy:lead", config.code.folder)
    return {score: steps.score_of_policy, lead: lead_of_policy}


def compare(function: Any, stand_in: Any, draw: random.Random, program: Program) -> None:
    """A function, compiled by itself, against what is written."""
    fast = compiled_as(function, stand_in)
    for _ in range(VIEWS):
        gap = draw.choice([0.0, 1e-9, 3.5, 1e6])
        arguments: tuple[Any, ...] = (random_view(draw), random_knobs(draw))
        if stand_in is lead_of_policy:
            arguments = (random_view(draw), random_view(draw), gap, random_knobs(draw))
        assert outcome(fast, *arguments) == outcome(function, *arguments), (arguments, program.source, program.helper)


def test_no_made_up_policy_is_silently_different() -> None:
    counts = fuzz(25, 1)
    assert counts["compiled"] >= LEAST_SHARE * counts["all"] >= LEAST_SHARE * 25


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2, 10))
def test_no_made_up_policy_of_many_is_silently_different(number: int) -> None:
    counts = fuzz(250, number)
    assert counts["compiled"] >= LEAST_SHARE * counts["all"] >= LEAST_SHARE * 250
