"""What docs/records.md says about reading runs works as it stands."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from fedtwin import Run
from fedtwin.runs.run import TABLES
from tests.test_docs import text_of

SECTION = text_of("docs/records.md").split("## Reading a run from Python")[1].split("\n## ")[0]


def test_the_examples_of_reading_a_run_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    assert len(blocks) == 3
    said = io.StringIO()
    namespace: dict[str, object] = {}
    with contextlib.redirect_stdout(said):
        for block in blocks:
            exec(block, namespace)
    assert said.getvalue().startswith("True cu-ucb 0.") and " more decisions, 500 uploads so far" in said.getvalue()


def test_everything_of_a_run_is_documented() -> None:
    public = {name for name in vars(Run) if not name.startswith("_")} | {"path", "finished"}
    for name in public - {"twin", "follow", "to_pandas"}:
        assert f"`{name}`" in SECTION, name
    assert all(f"`{name}" in SECTION for name in ("twin(", "follow(", "to_pandas("))
    assert set(TABLES) <= public
