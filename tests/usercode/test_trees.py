"""Threads that make syntax trees at the same time, as runs that share a GPU do: each loads data and looks at code."""

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fedtwin
from fedtwin.learning.data import load_dataset
from fedtwin.usercode import reaching, source
from fedtwin.usercode.trees import tree_of

ROOT = Path(fedtwin.__file__).parent
CODE = (ROOT / "usercode" / "values.py").read_text(encoding="utf-8")


@pytest.fixture
def collected_all_the_time() -> Iterator[None]:
    """The collector of garbage runs code of Python's, wherever a tree is being made, and so lets another thread go on."""

    def give_way(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(give_way)


def digits() -> None:
    load_dataset("digits")


def imports() -> None:
    reaching._imports.__wrapped__(CODE.encode(), "values", is_package=False)


def parsed() -> None:
    source._parsed.__wrapped__(CODE)


@pytest.mark.parametrize("others", [digits, imports, parsed])
@pytest.mark.usefixtures("collected_all_the_time")
def test_threads_that_read_data_and_code_do_not_fail_each_other(others: Callable[[], None]) -> None:
    """Python before 3.11.8 and 3.12.2 counts the depth of trees for all threads together."""
    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(ask) for _ in range(40) for ask in (digits, others)]
        for one in asked:
            one.result()


def test_nobody_makes_trees_otherwise() -> None:
    others = [path for path in ROOT.rglob("*.py") if path.name != "trees.py"]
    assert not [path for path in others if "ast.parse" in path.read_text(encoding="utf-8")]
    assert isinstance(tree_of("1").body, list)
