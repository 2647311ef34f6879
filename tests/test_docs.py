"""The docs name every setting, column, file and command, and point at nothing that is not there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedtwin.config import Config, LearningConfig, LiveConfig
from fedtwin.records.schema import DEVICES, EVALUATIONS, REFUSALS, rounds_schema
from fedtwin.records.summary import Summary
from fedtwin.registry import POLICIES, SCHEMES
from tests.conftest import run_cli

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
        *rounds_schema(trace=True, learning=True).names,
        *DEVICES.names,
        *EVALUATIONS.names,
        *REFUSALS.names,
        *Summary.__dataclass_fields__,
    ]:
        assert f"`{name}`" in page, name


def test_every_policy_and_scheme_is_documented() -> None:
    page = text_of("docs/configuration.md")
    assert all(f"`{name}`" in page for name in [*POLICIES, *SCHEMES])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_picture_says_which_command_made_it() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for picture in re.finditer(r"!\[[^\]]*\]\([^)]+\)", text):
            assert "Made by `" in text[picture.end() : picture.end() + 120], f"{page.name}: {picture.group()}"


def test_the_policy_in_contributing_works() -> None:
    code = re.search(r"```python\n(# src/fedtwin/policies/cheapest\.py.*?)```", text_of("CONTRIBUTING.md"), re.DOTALL)
    assert code is not None
    namespace: dict[str, object] = {}
    exec(code.group(1), namespace)
    assert type(namespace["POLICY"]).__name__ == "Policy"


def blocks_of(page: str) -> dict[str, str]:
    """The files that a page shows, by the names in their first lines, and its commands as ``sh``."""
    found = dict.fromkeys(["sh"], "")
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text_of(page), re.DOTALL):
        name = re.match(r"# (\S+\.(?:py|toml))\n", block)
        if name is not None:
            found[name.group(1)] = block
        elif language == "sh":
            found["sh"] += block
    return found


def test_the_page_about_own_code_works_as_it_stands(tmp_path: Path) -> None:
    blocks = blocks_of("docs/own_code.md")
    commands = blocks.pop("sh").splitlines()
    for name, text in blocks.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert len(commands) == 3 and {"mine.py", "mine.toml", "study.py"} <= blocks.keys()
    for command in commands:
        said = run_cli(*command.split()[1:], cwd=tmp_path)
        assert said.returncode == 0 and not said.stderr, (command, said.stderr)
    script = subprocess.run([sys.executable, "study.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert script.returncode == 0 and not script.stderr, script.stderr
    again = run_cli("run", "runs/study/config.toml", "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == json.loads((tmp_path / "runs/study/summary.json").read_text())
