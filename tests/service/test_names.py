"""Ids of runs and names of devices in addresses."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fedtwin.service.names import slugs
from fedtwin.service.selecting import selected

FOLDER = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.lists(FOLDER.filter(lambda name: name.strip(".") != ""), max_size=6))
def test_every_folder_has_a_slug_of_its_own(names: list[str]) -> None:
    folders = [Path(f"/at-{number}") / name for number, name in enumerate(names)]
    found = slugs(folders)
    assert list(found.values()) == folders
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", slug) for slug in found)


def test_a_plain_name_stays_as_it_is() -> None:
    assert list(slugs([Path("/a/my-run_2"), Path("/b/my-run_2"), Path("/c/2024 run")])) == [
        "my-run_2",
        "my-run_2-2",
        "run-2024-run",
    ]


def test_a_selector_picks_parts_where_they_stand() -> None:
    document = {"a": {"b": {"c": 1, "d": 2}, "e": 3}, "f": 4}
    assert selected(document, "a(b/c,e),f") == {"a": {"b": {"c": 1}, "e": 3}, "f": 4}
    assert selected(document, "/a/b/d") == {"a": {"b": {"d": 2}}}
    assert selected(document, "x,a/x/y,f/g") in ({}, {"a": {}}, {"a": {"x": {}}}) or selected(document, "x") == {}
    assert selected(document, None) is document
