"""The rooms of ``experiments``: analysis knows no other, specifications know no batches."""

import ast
from pathlib import Path

import pytest

import fedtwin

ROOT = Path(fedtwin.__file__).parent / "experiments"
MAY_NOT_IMPORT = {"analysis": ("batches", "specs"), "specs": ("batches", "analysis"), "batches": ("specs",)}


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_what_it_rests_on(path: Path) -> None:
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    for room in MAY_NOT_IMPORT[path.parent.name]:
        assert not any(str(node.module).startswith(f"fedtwin.experiments.{room}") for node in nodes), room
