"""One Chromium and one server for all tests of the page; every page that is opened must stay quiet and at home."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fedtwin
from tests.service.browser.fleets import PLAYED_ROUNDS, TRAINED, write_fleet
from tests.service.serving import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
PATIENCE_MS = 90_000
DESK: Any = {"width": 1440, "height": 900}
AXE = Path(__file__).parent / "axe"
OBSTACLES = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.filter(({ impact }) => impact === "serious" || impact === "critical")
        .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}"""
Open = Callable[..., "Page"]


@pytest.fixture(scope="package")
def browser() -> "Iterator[Browser]":
    """Ends before tests of other packages begin: Playwright keeps an event loop in this thread."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed here")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs: ``factory``, whose devices have positions and hostile names, and ``trained``, which trains a model."""
    place = tmp_path_factory.mktemp("runs")
    fleet = write_fleet(place / "fleet.csv")
    played = {"run.rounds": PLAYED_ROUNDS, "fleet.file": str(fleet), "fleet.channels": 3, "run.engine": "readable"}
    fedtwin.simulate(fedtwin.load_config(overrides=played), out=place / "factory")
    fedtwin.simulate(fedtwin.load_config(overrides=TRAINED), out=place / "trained")
    return place


@pytest.fixture(scope="package")
def address(browser: "Browser", folders: Path) -> Iterator[str]:  # noqa: ARG001
    """No server where there is no browser."""
    with serving(folders / "factory", folders / "trained") as client:
        yield str(client.base_url)


@dataclass
class Heard:
    """What pages did that they should not: errors on a console, dialogs, requests to another host."""

    said: list[str] = field(default_factory=list)

    def listen(self, page: "Page", base: str, *, noisy: bool) -> None:
        """A test about an answer that is refused is noisy: the browser itself writes such an answer on the console."""
        if not noisy:
            page.on("console", lambda message: self.said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: self.said.append(dialog.message))
        page.on("request", lambda request: None if _at_home(request.url, base) else self.said.append(request.url))


@pytest.fixture(scope="package")
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="package")
def desk(browser: "Browser", address: str, heard: Heard) -> "Page":
    """A page that tests share, because loading it takes longer than looking at it."""
    page = browser.new_page(viewport=DESK, reduced_motion="reduce")
    heard.listen(page, address, noisy=False)
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{address}/")
    return page


@pytest.fixture
def open_page(browser: "Browser", address: str, heard: Heard, request: pytest.FixtureRequest) -> Iterator[Open]:
    """The page at a hash: the shared one, or one of its own for a test with options. It has to stay quiet and at home."""
    heard.said.clear()
    opened: list[Page] = []
    own: list[Page] = []

    def open_(hash_: str, *, base: str = address, wait_for: str = ".timebar", noisy: bool = False, **options: Any) -> "Page":
        if base == address and not noisy and not options:
            page: Page = request.getfixturevalue("desk")
            page.evaluate("() => { location.hash = 'view=runs'; }")
            page.wait_for_selector("#runs-title")
            page.evaluate("hash => { location.hash = hash; }", hash_)
        else:
            own.append(page := browser.new_page(**{"viewport": DESK, "reduced_motion": "reduce", **options}))
            heard.listen(page, base, noisy=noisy)
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"{base}/{hash_}")
        opened.append(page)
        page.wait_for_selector(wait_for)
        return page

    yield open_
    assert not any(page.evaluate("() => window.hacked") for page in opened), "a name or a reason became code"
    assert heard.said == []
    for page in own:
        page.close()


def _at_home(url: str, base: str) -> bool:
    return url == "about:blank" or url.startswith((f"{base}/", "data:image/svg+xml,"))


def figure(page: "Page", name: str) -> str:
    """One of the numbers at the top, without its unit."""
    return page.locator(f"[data-figure={name}] b").inner_text()


def plain(text: str) -> float:
    """A number as the page writes it, read back."""
    return float(re.sub(r"[^0-9.eE-]", "", text.replace("−", "-").replace("\u202f", "")))


def obstacles(page: "Page") -> list[str]:
    """What stands in the way of people by keyboard or screen reader, as far as axe finds it serious."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate((AXE / "axe.min.js").read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(OBSTACLES)
    return found
