"""The docs name every setting, column, file and command, and point at nothing that is not there."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from fedtwin.config import Config, LearningConfig, LiveConfig
from fedtwin.records.schema import DEVICES, EVALUATIONS, REFUSALS, rounds_schema
from fedtwin.records.summary import Summary
from fedtwin.registry import AGGREGATORS, POLICIES, SCHEMES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_setting_is_documented_with_its_default() -> None:
    page = text_of("docs/configuration.md")
    for section, keys in Config(learning=LearningConfig(), live=LiveConfig()).model_dump().items():
        part = page.split(f"## [{section}]")[1].split("\n## ")[0]
        for key, default in keys.items():
            shown = "" if default is None else f"{default:g}" if isinstance(default, float) else str(default)
            assert re.search(rf"\| `{key}` \| `?\"?{re.escape(shown)}\"?`? \|", part), f"{section}.{key}"


def test_every_column_is_documented() -> None:
    page = text_of("docs/records.md")
    for name in [
        *rounds_schema(trace=True, learning=True, timeout=True).names,
        *DEVICES.names,
        *EVALUATIONS.names,
        *REFUSALS.names,
        *Summary.__dataclass_fields__,
    ]:
        assert f"`{name}`" in page, name


def test_every_policy_and_scheme_is_documented() -> None:
    page = text_of("docs/configuration.md")
    assert all(f"`{name}`" in page for name in [*POLICIES, *SCHEMES])


def test_every_aggregation_is_documented() -> None:
    page = text_of("docs/configuration.md")
    assert all(f"| `{name}` |" in page for name in AGGREGATORS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_picture_says_which_command_made_it() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for picture in re.finditer(r"!\[[^\]]*\]\([^)]+\)", text):
            made = "Drawn by hand" if "architecture.svg" in picture.group() else "Made by `"
            assert made in text[picture.end() : picture.end() + 120], f"{page.name}: {picture.group()}"


def test_the_policy_in_contributing_works() -> None:
    code = re.search(r"```python\n(# src/fedtwin/policies/cheapest\.py.*?)```", text_of("CONTRIBUTING.md"), re.DOTALL)
    assert code is not None
    namespace: dict[str, object] = {}
    exec(code.group(1), namespace)
    assert type(namespace["POLICY"]).__name__ == "Policy"


def made_by(name: str) -> ModuleType:
    """A program of the docs that makes a page or a part of one."""
    specification = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_page_of_the_api_is_what_the_docstrings_say() -> None:
    assert text_of("docs/api.md") == made_by("make_api").page(), "run: python docs/make_api.py"


def test_the_table_of_rooms_is_what_the_docstrings_say() -> None:
    assert "\n".join(made_by("make_map").rooms()) + "\n" in text_of("docs/design.md"), "run: python docs/make_map.py"


def test_the_table_of_routes_is_what_is_served() -> None:
    assert text_of("docs/twin.md") == made_by("make_routes").page(), "run: python docs/make_routes.py"
