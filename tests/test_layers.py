"""One direction: a layer imports only from those before it, a room of the live fleet only from the rooms it may know, and who
decides, or serves, never sees the truth.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedtwin

ROOT = Path(fedtwin.__file__).parent
LAYERS = [
    *("errors", "extras", "given", "files", "draws", "usercode", "compiling", "registry", "parts", "processes", "supervision"),
    *("config", "formulas", "world", "twin", "policies", "prediction", "learning", "records", "model_out", "coordinator"),
    *("sim", "live", "runs", "testing", "experiments", "whatif", "service", "figures", "cli", "__main__"),
]
DECIDES = ("twin", "policies", "coordinator")
TRUTH = ("world", "sim")
MODULES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")

KNOWS: dict[str, set[str]] = {
    "logs": set(),
    "event_loop": {"logs"},
    "watchdog": {"logs"},
    "wire": {"logs"},
    "device": {"logs", "wire"},
    "broker": {"logs", "wire"},
    "run": {"logs", "wire"},
    "views": {"logs", "wire", "run"},
    "server": {"logs", "event_loop", "watchdog", "wire", "broker", "run", "views"},
    "agents": {"event_loop", "wire", "device", "server"},
    "local": {"broker"},
    "seeing": {"wire", "views"},
    "checkup": {"wire", "broker", "seeing"},
    "demo": {"broker", "run", "server", "wire", "local"},
}
"""The rooms of ``live/``, and which others each of them may import. Server and devices meet on the wire only."""
EMULATION = ROOT / "live" / "device" / "emulation.py"
LIVE = [path for path in MODULES if path.is_relative_to(ROOT / "live") and path != ROOT / "live" / "__init__.py"]


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """Everything of ours that a module imports, wherever in it: ``fedtwin.live.run.core`` as (live, run, core)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (tuple(name.split(".")[1:]) for name in names if name.startswith("fedtwin."))


def imported_layers(path: Path) -> set[str]:
    public = set(fedtwin.__all__)
    return {name[0] for name in imported(path) if name[0] not in public}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = LAYERS.index(layer_of(path))
    for layer in imported_layers(path):
        assert LAYERS.index(layer) <= own, f"{path} imports from {layer}, which comes later"


@pytest.mark.parametrize("path", [path for path in MODULES if layer_of(path) in DECIDES], ids=lambda path: path.name)
def test_who_decides_imports_neither_formulas_nor_the_truth(path: Path) -> None:
    assert not imported_layers(path) & {"formulas", *TRUTH}


@pytest.mark.parametrize("path", LIVE, ids=lambda path: str(path.relative_to(ROOT)))
def test_of_the_live_fleet_only_an_emulated_device_sees_the_truth(path: Path) -> None:
    assert bool(imported_layers(path) & set(TRUTH)) == (path == EMULATION)


@pytest.mark.parametrize("path", LIVE, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_of_the_live_fleet_know_what_they_may(path: Path) -> None:
    own = path.relative_to(ROOT / "live").parts[0].removesuffix(".py")
    rooms = {name[1] for name in imported(path) if name[0] == "live" and len(name) > 1}
    assert rooms <= KNOWS[own] | {own}, f"{path} imports from {sorted(rooms - KNOWS[own] - {own})}"


def test_rooms_know_only_rooms_before_them() -> None:
    order = list(KNOWS)
    assert all(order.index(known) < order.index(room) for room, others in KNOWS.items() for known in others)


NATS = [*(ROOT / "live" / "wire").glob("nats_*.py"), ROOT / "live" / "wire" / "client.py"]
WITHOUT_THE_SYSTEM = ("server", "device", "run", "views")
"""Rooms whose every step under virtual time can be done again: time, chance and threads come to them by ``wire/ports.py``."""


def libraries(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_transport_by_nats_knows_nats(path: Path) -> None:
    assert ("nats" in set(libraries(path))) == (path in NATS), "everybody else speaks to wire/ports.py"


@pytest.mark.parametrize("path", [path for path in LIVE if path.parts[-2] in WITHOUT_THE_SYSTEM], ids=lambda path: path.name)
def test_time_chance_and_threads_come_by_a_port(path: Path) -> None:
    assert not set(libraries(path)) & {"time", "datetime", "random", "secrets", "uuid", "threading", "concurrent"}
    text = path.read_text(encoding="utf-8")
    assert not any(call in text for call in ("to_thread", "run_in_executor", "urandom"))


def test_no_two_classes_of_one_name_in_a_layer() -> None:
    names: Counter[tuple[str, str]] = Counter()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names[layer_of(path), node.name] += 1
    assert [name for name, count in names.items() if count > 1] == []
