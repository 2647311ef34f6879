"""The page on a phone, in the dark, by keyboard and for a screen reader; and what it says when there is nothing to show."""

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed here")
from playwright.sync_api import Page, expect

from tests.service.browser.conftest import AXE, Open, obstacles

HERE = Path(__file__).parent
VENDOR = HERE.parents[2] / "src/fedtwin/service/static/vendor"
VIEWS = ("What if", "Fidelity", "Refusals", "Runs", "Fleet")
GROUND = (
    "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0)"
)


def go(page: Page, view: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("button", name=view).click()
    expect(page.locator("main .card").first).to_be_visible()


def test_nothing_stands_in_the_way_of_anybody(open_page: Open) -> None:
    page = open_page("#run=trained&device=2&at=round:20")
    expect(page.locator(".facts tbody").first).to_be_visible()
    found = {"device": obstacles(page)}
    page.keyboard.press("Escape")
    for view in VIEWS:
        page.get_by_role("button", name="Theme:").click()
        go(page, view)
        found[view] = obstacles(page)
    assert found == {part: [] for part in ("device", *VIEWS)}


def test_a_phone_shows_everything_without_scrolling_sideways(open_page: Open) -> None:
    page = open_page("#run=factory", viewport={"width": 390, "height": 844}, has_touch=True)
    for view in VIEWS:
        go(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, view
    page.locator("tbody button[data-device='1']").tap()
    drawer = page.get_by_role("complementary")
    expect(drawer.locator("h2")).to_have_text("lathe")
    box = drawer.bounding_box()
    assert box is not None and (box["x"], box["width"]) == (0, 390)
    page.get_by_role("button", name="Close the device").tap()
    expect(drawer).to_have_count(0)


def test_dark_is_dark_and_what_was_chosen_is_kept(open_page: Open) -> None:
    page = open_page("#run=factory", color_scheme="dark")
    assert page.evaluate(GROUND) < 150
    page.get_by_role("button", name="Theme: system").click()
    assert page.evaluate(GROUND) > 600
    page.reload()
    page.wait_for_selector(".timebar")
    assert page.evaluate(GROUND) > 600


def test_everything_can_be_reached_by_keyboard(open_page: Open) -> None:
    page = open_page("#run=factory")
    page.keyboard.press("/")
    page.keyboard.type("ov")
    expect(page.locator("tbody th.name button")).to_have_text(["oven"])
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.device") == "2":
            break
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-title")).to_have_text("oven")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.device") == "2", "the focus comes back"
    page.keyboard.press("3")
    expect(page.locator("#record-title")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_what_cannot_be_shown_is_a_sentence(open_page: Open) -> None:
    page = open_page("#run=factory&device=99", wait_for=".drawer")
    expect(page.locator(".drawer .says")).to_have_text("This run has no device 99; it has 10.")
    noisy = open_page("#run=factory&at=round:999999", wait_for=".says.error", noisy=True)
    expect(noisy.locator("main .says.error").first).to_contain_text("round:999999")
    noisy.route("**/api/**", lambda route: route.abort())
    noisy.reload()
    expect(noisy.locator("main .says.error")).to_have_text("The server does not answer. Is fedtwin serve still running?")


@pytest.mark.parametrize("folder", [VENDOR, AXE], ids=["page", "axe"])
def test_libraries_are_what_their_checksums_say(folder: Path) -> None:
    lines = (folder / "CHECKSUMS").read_text(encoding="ascii").splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines if not line.startswith("#"))}
    there = {path.name for path in folder.iterdir()} - {"CHECKSUMS", "README.md"}
    assert set(listed) == there
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
