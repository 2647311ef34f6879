"""Compiled formulas give the bits of the plain ones, and code kept on disk is never older than its sources."""

import importlib
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtwin import compiling, draws
from fedtwin.compiling import compiled, folder_of, stamp, translate
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.formulas.terms import Terms
from fedtwin.usercode import load_object
from fedtwin.world import normal_load, rayleigh
from fedtwin.world.parts import Moment, Processor

seeds, devices, rounds = st.integers(0, 2**63 - 1), st.integers(0, 2**31), st.integers(0, 10**12)


@given(seeds, devices, rounds)
def test_draws(seed: int, device: int, round_: int) -> None:
    start = draws.stream(seed, 2, device)
    assert compiled_stream(seed, 2, device) == start
    at, same = Moment(start, device, round_, 0.5), Moment(np.uint64(start), device, round_, 0.5)  # type: ignore[arg-type]
    cpu = Processor(2e9, 2e8, 1e8)
    assert compiled_gain(same, 1e-11, ()) == rayleigh.gain(at, 1e-11, ())
    assert compiled_cpu_hz(same, cpu, ()) == normal_load.cpu_hz(at, cpu, ())


compiled_stream, compiled_gain, compiled_cpu_hz = (
    compiled(function) for function in (draws.stream, rayleigh.gain, normal_load.cpu_hz)
)
compiled_plans = {plan: compiled(plan) for plan in (optimal_plan, full_power_plan)}


@given(
    st.floats(-16, -8),
    st.floats(1e8, 4e9),
    st.integers(1, 500),
    st.sampled_from([0.0, 1.0]) | st.floats(0, 1),
    st.floats(0.05, 3),
    st.floats(0.05, 3),
)
@settings(max_examples=500)
def test_power(log_gain: float, cpu_hz: float, samples: int, weight: float, max_time_s: float, max_energy_j: float) -> None:
    terms = Terms(1e6, 10 ** (-18.4), 1.0, 8e6, 5e6, 2e-28, weight, max_time_s, max_energy_j)
    for plan, fast in compiled_plans.items():
        gain = math.pow(10.0, log_gain)
        assert tuple(fast(terms, gain, cpu_hz, float(samples))) == tuple(plan(terms, gain, cpu_hz, float(samples)))


def test_stand_ins_are_replaced_wherever_they_are_called() -> None:
    assert compiled(outer, {inner: other_inner})(3) == 30
    assert compiled(outer)(3) == 4


def inner(x: int) -> int:
    return x + 1


def other_inner(x: int) -> int:
    return 10 * x


def middle(x: int) -> int:
    return inner(x)


def outer(x: int) -> int:
    return middle(x)


def also_outer(x: int) -> int:
    return middle(x + 1)


def test_changed_code_or_constants_are_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only a helper in another module changed, or a constant that came from elsewhere."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_helper.py").write_text("def half(x):\n    return x / 2\n")
    (tmp_path / "my_policy.py").write_text(
        "from my_helper import half\nFACTOR = 3.0\ndef score(x):\n    return FACTOR * half(x)"
    )
    module = importlib.import_module("my_policy")
    first = folder_of("play", stamp(module.score))
    assert folder_of("play", stamp(module.score)) == first
    monkeypatch.setattr(module, "FACTOR", 4.0)
    assert folder_of("play", stamp(module.score)) != first
    monkeypatch.setattr(module, "FACTOR", 3.0)
    assert folder_of("play", stamp(module.score)) == first
    monkeypatch.setattr(module, "half", other_inner)
    assert folder_of("play", stamp(module.score)) != first


def test_the_same_code_in_another_folder_is_the_same_to_compile(tmp_path: Path) -> None:
    """So that a policy that is moved with its run folder, or written anew by a script, is not compiled again."""
    for folder, factor in (("here", 3.0), ("there", 3.0), ("elsewhere", 4.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"FACTOR = {factor}\ndef score(x):\n    return FACTOR * x\n")
    here, there, elsewhere = (
        stamp(load_object("policy.name", "mine:score", str(tmp_path / folder))) for folder in ("here", "there", "elsewhere")
    )
    assert here == there != elsewhere


def test_what_several_call_is_compiled_once() -> None:
    first, second = compiling.compiled_together([outer, also_outer])
    assert first(3) == 4 and second(3) == 5
    assert first.py_func.__globals__["middle"] is second.py_func.__globals__["middle"]
    assert len(first.py_func.__globals__["middle"].signatures) == 1


def test_an_entry_that_another_calls_can_still_be_called_from_python() -> None:
    by_another, alone = compiling.compiled_together([outer, middle])
    assert by_another(3) == alone(3) == 4


def test_without_numba_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "find_spec", lambda _: None)
    with pytest.raises(FedtwinError, match=r"pip install 'fedtwin\[sim\]'"):
        compiled(inner)


@pytest.mark.slow
def test_the_next_process_reads_what_this_one_compiled(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedtwin", "run", "--set", "run.engine=compiled", "--rounds", "50", "--json"]
    said = [
        subprocess.run(command, env={**os.environ, "FEDTWIN_CACHE": str(tmp_path)}, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert "Compiling the engine for cu-ucb" in said[0].stderr and "Compil" not in said[1].stderr
    assert said[0].stdout == said[1].stdout


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = compiling.keep_on_disk(compiled(outer), tmp_path / "file" / "folder", "a test")
    assert kept(3) == 4


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert compiling.keep_on_disk(compiled(outer), folder, "a test")(3) == 4
    for path in folder.glob("*.nb?"):
        path.write_bytes(b"nonsense")
    assert compiling.keep_on_disk(compiled(outer), folder, "a test")(3) == 4
    assert compiling.is_kept(folder)
