"""One direction: a layer imports only from those before it, and who decides never sees the truth."""

import ast
from pathlib import Path

import pytest

import fedtwin

ROOT = Path(fedtwin.__file__).parent
LAYERS = [
    *("errors", "draws", "usercode", "compiling", "registry", "processes"),
    *("config", "physics", "power", "twin", "policies", "learning", "records", "coordinator"),
    *("sim", "live", "runs", "experiments", "figures", "cli", "__main__"),
]
DECIDES = ("twin", "policies", "coordinator")
TRUTH = ("physics", "power", "sim")
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names.append(node.module or "")
    return {name.split(".")[1] for name in names if name.startswith("fedtwin.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = LAYERS.index(layer_of(path))
    for layer in imported_layers(path):
        assert LAYERS.index(layer) <= own, f"{path} imports from {layer}, which comes later"


@pytest.mark.parametrize("path", [path for path in MODULES if layer_of(path) in DECIDES], ids=lambda path: path.name)
def test_who_decides_never_imports_the_truth(path: Path) -> None:
    assert not imported_layers(path) & set(TRUTH)
