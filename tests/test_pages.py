"""README and every page of the docs work as they stand: files, commands and programs, in order, in an empty folder."""

from pathlib import Path

import pytest

from tests.pages import ROOT, blocks_of, run_page, steps_of

ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ABOUT_THE_SOURCE = ["CONTRIBUTING.md"]
"""What it shows stands in the repository; tests/test_docs.py has it."""
TAKE_MINUTES = [
    "README.md",
    "data.md",
    "first_hour.md",
    "sweeps.md",
    "learning.md",
    "live.md",
    "model_out.md",
    "own_code.md",
    "tutorial_researcher.md",
    "twin.md",
]

MOST_S = 2700
"""README.md trains the quick headline, over three minutes on two idle cores, and these pages are run beside other tests."""


def to_be_run(page: Path) -> bool:
    return page.name not in ABOUT_THE_SOURCE and any(step.file is None for step in steps_of(page))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in TAKE_MINUTES else [])
        for page in ALL
        if to_be_run(page)
    ],
)
def test_a_page_works_as_it_stands(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, timeout_s=MOST_S)


def test_every_page_with_commands_is_run() -> None:
    run = [page.name for page in ALL if to_be_run(page)]
    tutorials = {"README.md", "tutorial_researcher.md", "tutorial_engineer.md", "first_hour.md"}
    assert tutorials | {"own_code.md", "sweeps.md", "live.md"} <= set(run)


def test_settings_that_a_page_shows_have_a_name_so_that_they_are_read() -> None:
    for page in ALL:
        assert [block.text for block in blocks_of(page) if block.language == "toml" and block.file is None] == [], page.name
