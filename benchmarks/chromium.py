"""Debian's Chromium, driven by Playwright, and when something is on its screen: what the benchmarks of the page share."""

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
DESK: Any = {"width": 1440, "height": 900}
LIMIT_MS = 600_000
AFTER_PAINT = "window.afterPaint = (then) => requestAnimationFrame(() => setTimeout(() => then(performance.now())));"
"""JavaScript: calls back once the next frame is on the screen, with the milliseconds since the navigation began."""


@contextmanager
def chromium() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program is not None, "no chromium is installed here"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET.split())
        yield browser
        browser.close()


def spread(times_ms: list[float]) -> str:
    """Median, 95 of 100, and the worst."""
    found = sorted(times_ms)
    most = found[math.ceil(0.95 * len(found)) - 1]
    return f"median {median(found):.0f} ms, 95 of 100 within {most:.0f} ms, all {found[-1]:.0f} ms"
