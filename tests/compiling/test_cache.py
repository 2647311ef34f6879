"""The inside of Numba's cache is private: where it is not as it was, nothing is kept, and nothing is computed otherwise."""

import re
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import caching

from fedtwin.compiling import cache, compiled, is_kept, keep_on_disk
from fedtwin.errors import FedtwinWarning
from fedtwin.sim import simulate

ROOT = Path(__file__).parents[2]


def plus_one(x: int) -> int:
    return x + 1


def plus_two(x: int) -> int:
    return x + 2


def gone(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(caching, "_CacheLocator")


def one_more_method(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(caching._CacheLocator, "__abstractmethods__", frozenset({*cache.OF_A_LOCATOR, "get_more"}))


def other_arguments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(caching.FunctionCache, "load_overload", lambda self, sig: (self, sig))


def no_locators(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(caching.CacheImpl, "_locator_classes")


def no_class_of_an_impl(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(caching.FunctionCache, "_impl_class")
    patch.delattr(caching.Cache, "_impl_class")


def a_place_of_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(caching.Cache, "cache_path", property(lambda _: "/elsewhere"))


def a_start_that_fails(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise TypeError("another constructor")

    patch.setattr(caching.Cache, "__init__", fail)


def another_default(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(caching, "NullCache", type("NullCache", (), {}))


def newer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(numba, "__version__", "0.69.0")


def older(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(numba, "__version__", "0.59.1")


CHANGES: list[Callable[[pytest.MonkeyPatch], None]] = [
    gone,
    one_more_method,
    other_arguments,
    no_locators,
    no_class_of_an_impl,
    a_place_of_its_own,
    a_start_that_fails,
    another_default,
    newer,
    older,
]


@pytest.fixture(autouse=True)
def _nothing_was_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_announced", set())


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_library_keeps_nothing_says_so_once_and_computes_the_same(
    change: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    if change is gone:
        assert keep_on_disk(compiled(plus_one), kept, "a test")(1) == 2 and is_kept(kept)
    change(monkeypatch)
    with pytest.warns(FedtwinWarning, match=r"The cache of Numba .* is not what fedtwin knows .* not kept"):
        first = keep_on_disk(compiled(plus_one), tmp_path / "one", "a test")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = keep_on_disk(compiled(plus_two), tmp_path / "two", "another test")
    assert (first(1), second(1)) == (2, 3)
    assert not [path for place in ("one", "two") for path in (tmp_path / place).rglob("*") if path.is_file()]
    if change is gone:
        assert not is_kept(kept), "what is there cannot be read"


def test_a_library_that_fails_to_write_says_so_and_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise TypeError("another format")

    monkeypatch.setattr(caching.Cache, "_save_overload", fail)
    function = keep_on_disk(compiled(plus_one), tmp_path / "one", "a test")
    with pytest.warns(FedtwinWarning, match=r"\(TypeError: another format\): compiled code is not kept"):
        assert function(1) == 2


def test_a_place_that_the_user_chose_for_numba_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba's own caches are named after files: two policies would be one there."""
    if not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"):
        pytest.skip("this Numba has no such setting")
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "InTreeCacheLocator")
    with pytest.warns(FedtwinWarning, match="it keeps code in"):
        assert keep_on_disk(compiled(plus_one), tmp_path / "one", "a test")(1) == 2
    assert not (Path(__file__).parent / "__pycache__" / "plus_one.nbi").exists()


@pytest.mark.slow
def test_a_run_with_a_changed_library_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTWIN_CACHE", str(tmp_path / "cache"))
    from fedtwin.sim.fast import compile as fast_compile

    monkeypatch.setattr(fast_compile, "_made", {})
    quickly_compiled = {"run.rounds": 60, "policy.name": "Sy-fairness"}
    readable = simulate({**quickly_compiled, "run.engine": "readable"})
    gone(monkeypatch)
    with pytest.warns(FedtwinWarning, match="not kept for the next process"):
        compiled_ = simulate({**quickly_compiled, "run.engine": "compiled"})
    assert compiled_.rounds.equals(readable.rounds)
    assert not list((tmp_path / "cache").rglob("*.nb?"))


def test_the_releases_that_are_known_are_those_that_are_asked_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    low, high = re.findall(r"(\d+)\.(\d+)", next(one for one in extras["sim"] if one.startswith("numba")))
    assert tuple(map(int, low)) == cache.KNOWN_FROM and tuple(map(int, high)) == cache.KNOWN_BEFORE
    assert cache.why_unknown() is None


def test_the_inside_of_numbas_cache_is_in_one_file() -> None:
    found = [path.name for path in (ROOT / "src").rglob("*.py") if "core.caching" in path.read_text(encoding="utf-8")]
    assert found == ["cache.py"]
