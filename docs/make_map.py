"""Draws docs/map.svg, the rooms of the package, and writes their table into docs/design.md: ``python docs/make_map.py``.

The order is the one tests/test_layers.py holds the imports to; what a room is for is the first sentence of its docstring.
"""

import ast
import re
import sys
from pathlib import Path

from matplotlib import rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.test_layers import KNOWS, LAYERS, ROOT

HERE = Path(__file__).parent
BEGIN, END = "<!-- rooms -->\n", "<!-- end of rooms -->\n"
BANDS = [
    ("ground", ["errors", "files", "draws", "usercode", "compiling", "registry", "processes", "supervision"]),
    ("the model of the world", ["config", "formulas", "world"]),
    ("who decides", ["twin", "policies", "coordinator"]),
    ("what is trained and kept", ["learning", "records", "model_out"]),
    ("two ways to run", ["sim", "live"]),
    ("what is made of runs", ["runs", "testing", "experiments", "whatif", "service", "figures", "cli"]),
]
LIVE = [["device"], ["wire", "broker"], ["server"], ["run"], ["views"]]
UPLOAD = "an upload: device → wire → server → run (admission → model → ledger) → acknowledged"


def rooms() -> list[str]:
    """The package's rooms in the order of their imports, each with what it is for."""
    lines = ["| room | what is in it |", "|---|---|"]
    for layer in (layer for layer in LAYERS if not layer.startswith("_")):
        lines.append(f"| `{layer}` | {_purpose(ROOT / layer)} |")
        if layer == "live":
            lines += [f"| `live/{room}` | {_purpose(ROOT / 'live' / room)} |" for room in KNOWS]
    return lines


def _purpose(room: Path) -> str:
    source = room / "__init__.py" if room.is_dir() else room.with_suffix(".py")
    documented = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    if not documented:
        raise SystemExit(f"{source} has no docstring")
    return re.split(r"(?<=[.])\s", documented.replace("\n", " "))[0].replace("``", "`").replace("|", "\\|")


def draw() -> Figure:
    picture = Figure(figsize=(10, 6.4))
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 100), ylim=(0, 66))
    axes.axis("off")
    y = 62.0
    for number, (title, layers) in enumerate(BANDS):
        high = 17.0 if "live" in layers else 7.0
        y -= high + 1.6
        axes.text(1, y + high / 2, title, va="center", fontsize=10, style="italic")
        wide = 76 / (len(layers) if "live" not in layers else 1)
        for k, layer in enumerate(layers):
            if layer == "live":
                _box(axes, 40, y, 58, high, "live", f"C{number}", top=True)
                for column, stack in enumerate(LIVE):
                    for row, room in enumerate(stack):
                        tall = 9.0 / len(stack) - (0.5 if len(stack) > 1 else 0)
                        _box(axes, 41.5 + 11.2 * column, y + 4.4 + row * 4.7, 10.2, tall, room, "white")
                axes.text(69, y + 2.2, UPLOAD, ha="center", va="center", fontsize=8)
            else:
                left, room_wide = (22, 16.5) if "live" in layers else (22 + k * wide, wide - 1)
                _box(axes, left, y, room_wide, high, layer, f"C{number}")
        if number:
            axes.annotate("", (12, y + high + 0.1), (12, y + high + 1.5), arrowprops={"arrowstyle": "->"})
    axes.text(
        50,
        64,
        "Run time and imports go downwards: a room knows only those above it, and its left neighbours",
        ha="center",
        fontsize=11,
    )
    return picture


def _box(axes, left, low, wide, high, name, colour, *, top=False):  # type: ignore[no-untyped-def]
    fill = {"facecolor": colour, "alpha": 0.25 if colour != "white" else 1.0, "edgecolor": "0.35"}
    axes.add_patch(FancyBboxPatch((left, low), wide, high, boxstyle="round,pad=0.1,rounding_size=0.8", **fill))
    axes.text(left + wide / 2, low + (high - 1.6 if top else high / 2), name, ha="center", va="center", fontsize=9)


def main() -> None:
    rcParams["svg.hashsalt"] = "fedtwin"
    page = HERE / "design.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text(before + BEGIN + "\n".join(rooms()) + "\n" + END + after, encoding="utf-8")
    picture = draw()
    FigureCanvasSVG(picture)
    picture.savefig(HERE / "map.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
