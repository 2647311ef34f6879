"""How long a Chromium takes to show 5,000 devices and a million rounds: the first paint, any moment by the slider, a filter.

python -m benchmarks.page_paint          # some minutes, most of them for the run itself
python -m benchmarks.page_paint --quick  # a hundredth of the rounds
python -m benchmarks.page_paint --run DIR  # of a run that is there
"""

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.chromium import AFTER_PAINT, DESK, LIMIT_MS, chromium, spread
from benchmarks.service import ask, memory_of, simulate

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OPENED, MOVED = 10, 30
REST_MS = 300
"""Between two moves, so that each is measured alone."""
WATCH = """
    window.marks = { said: [] };
    const isDrawn = (canvas) => {
        if (!canvas?.width) return false;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        for (let place = 3; place < data.length; place += 4) if (data[place]) return true;
        return false;
    };
    const once = (name) => { marks[name] = null; afterPaint((now) => { marks[name] = now; }); };
    const look = () => {
        const said = document.querySelector("main .says")?.textContent;
        if (said && said !== marks.said.at(-1)?.[0]) marks.said.push([said, performance.now()]);
        if (!("table" in marks) && document.querySelector(".table-card tbody tr.row")) once("table");
        if (!("map" in marks) && isDrawn(document.querySelector(".map-canvas"))) once("map");
        if (!("curves" in marks) && document.querySelector(".curves .chart canvas")) once("curves");
        if (!("table" in marks && "map" in marks && "curves" in marks)) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
SLIDE = """(place) => new Promise((done) => {
    const shown = document.querySelector("output.moment");
    const slider = document.getElementById("time");
    const begun = performance.now();
    const watcher = new MutationObserver(() => { watcher.disconnect(); afterPaint((now) => done(now - begun)); });
    watcher.observe(shown, { subtree: true, childList: true, characterData: true });
    slider.value = place;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
})"""
FILTER = """(text) => new Promise((done) => {
    const field = document.getElementById("filter");
    const begun = performance.now();
    const watcher = new MutationObserver(() => { watcher.disconnect(); afterPaint((now) => done(now - begun)); });
    watcher.observe(document.querySelector(".table-card tbody"), { subtree: true, childList: true, characterData: true });
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
})"""
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
ALL_THERE = "() => ['map', 'table', 'curves'].every((name) => window.marks?.[name])"


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, str]]:
    """A server of its own, as soon as it listens: its process and its address."""
    command = [sys.executable, "-m", "fedtwin", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.pid, process.stderr.readline().split(" at ")[1].strip().rstrip("/")
        finally:
            process.terminate()


def opened(browser: "Browser", address: str) -> tuple["Page", dict[str, Any]]:
    """In a context of its own, so with nothing in its cache, until map, table and curves are drawn: when each of them was."""
    page = browser.new_context(viewport=DESK).new_page()
    page.add_init_script(AFTER_PAINT + WATCH)
    page.goto(f"{address}/")
    page.wait_for_function(ALL_THERE, timeout=LIMIT_MS)
    marks: dict[str, Any] = page.evaluate("() => marks")
    return page, {**marks, "first": page.evaluate(FIRST_PAINT)}


def while_indexed(browser: "Browser", folder: Path) -> dict[str, Any]:
    """Somebody looks as soon as the server listens."""
    with served(folder) as (_, address):
        page, marks = opened(browser, address)
        page.context.close()
        return marks


def when_ready(browser: "Browser", folder: Path, times: int, moves: int) -> dict[str, list[float]]:
    chance = random.Random(0)
    with served(folder) as (pid, address):
        (told,) = ask(address, "/api/runs")[0]["runs"]
        ask(address, f"/api/runs/{told['id']}/fleet")
        found: dict[str, list[float]] = {"first paint": [], "map and table": [], "map, table and curves": []}
        for _ in range(times):
            page, marks = opened(browser, address)
            found["first paint"].append(marks["first"])
            found["map and table"].append(max(marks["map"], marks["table"]))
            found["map, table and curves"].append(max(marks["map"], marks["table"], marks["curves"]))
            if len(found["first paint"]) < times:
                page.context.close()
        found["a moment by the slider"] = _each(page, SLIDE, [chance.randrange(1000) for _ in range(moves)])
        found["a filter by name"] = _each(page, FILTER, [f"device-{chance.randrange(100)}" for _ in range(moves)])
        page.context.close()
        print(f"memory of the server after all that {memory_of(pid)}")
        return found


def _each(page: "Page", script: str, values: list[Any]) -> list[float]:
    """Values that are like the one before would change nothing."""
    found = []
    for value, before in zip(values, [None, *values], strict=False):
        if value != before:
            page.wait_for_timeout(REST_MS)
            found.append(float(page.evaluate(script, value)))
    return found


def measure(folder: Path, times: int = OPENED, moves: int = MOVED) -> dict[str, list[float]]:
    with chromium() as browser:
        begun = while_indexed(browser, folder)
        said = "; ".join(f"{at_ms:.0f} ms: {text!r}" for text, at_ms in begun["said"])
        print(f"while it is indexed: first paint {begun['first']:.0f} ms; {said or 'it says nothing'}; ", end="")
        print(f"map {begun['map']:.0f} ms, table {begun['table']:.0f} ms, curves {begun['curves']:.0f} ms")
        found = when_ready(browser, folder, times, moves)
    for name, times_ms in found.items():
        print(f"{name:25} {spread(times_ms)} ({len(times_ms)})")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rounds")
    parser.add_argument("--run", type=Path, help="the folder of a run")
    given = parser.parse_args()
    if given.run is not None:
        measure(given.run)
        return
    with tempfile.TemporaryDirectory() as place:
        simulate(Path(place, "run"), 10_000 if given.quick else 1_000_000, 5_000)
        measure(Path(place, "run"))


if __name__ == "__main__":
    main()
