"""Writes the table of routes into docs/twin.md: ``python docs/make_routes.py``."""

from pathlib import Path

from fedtwin.service.all_routes import ROUTES

PAGE = Path(__file__).with_name("twin.md")
BEGIN, END = "<!-- routes -->\n", "<!-- end of routes -->\n"


def table() -> str:
    """Every route with its parameters and what it gives."""
    lines = ["| method, path | parameters | gives |", "|---|---|---|"]
    for route in ROUTES:
        parameters = ", ".join(f"`{one.name}`" for one in route.parameters)
        who = " (operators)" if route.role == "operator" else ""
        lines.append(f"| {route.method} `{route.path}` | {parameters} | {route.summary}{who} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
