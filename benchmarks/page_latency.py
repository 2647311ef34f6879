"""How long after its line in the ledger a decision or an upload is with who looks at the page of ``fedtwin live demo``.

python -m benchmarks.page_latency                         # eight devices, one listener of the events
python -m benchmarks.page_latency --devices 30 --browser  # on the screen of a Chromium, too
"""

import argparse
import json
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.chromium import AFTER_PAINT, DESK, LIMIT_MS, chromium, spread
from benchmarks.demo_run import LIMIT_S, Line, demo, lines_of

Shown = dict[str, list[tuple[int, float]]]
"""Of the round and of the version of the model: which was seen, and when, in the order they came."""
FIELDS = {"round": "round", "version": "model_version"}
WATCH = """() => {
    window.shown = { round: [], version: [] };
    const look = () => {
        for (const [name, seen] of Object.entries(shown)) {
            const text = document.querySelector(`[data-figure=${name}] b`)?.textContent.replaceAll(/\\D/g, "");
            if (!text || Number(text) === seen.at(-1)?.[0]) continue;
            const entry = [Number(text), null];
            seen.push(entry);
            afterPaint(() => { entry[1] = Date.now() / 1000; });
        }
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
}"""


def listen(address: str, shown: Shown) -> None:
    """The events as they come, until the run ends."""
    with urllib.request.urlopen(f"{address}/api/runs/run/events", timeout=LIMIT_S) as stream:
        for line in stream:
            if line.startswith(b"event: finished"):
                return
            if line.startswith(b"data:") and "queue_round" in (told := json.loads(line[5:])):
                for name, field in FIELDS.items():
                    shown[name].append((told[field], time.time()))


def look(address: str) -> Shown:
    """The page in a Chromium, until it says that the run has ended."""
    with chromium() as browser:
        page = browser.new_page(viewport=DESK)
        page.add_init_script(AFTER_PAINT)
        page.goto(f"{address}/")
        page.evaluate(WATCH)
        page.wait_for_selector(".pill.finished", timeout=LIMIT_MS)
        page.wait_for_timeout(500)
        found: dict[str, list[tuple[int, float]]] = page.evaluate("() => shown")
        return found


def late_ms(lines: list[Line], shown: Shown) -> dict[str, list[float]]:
    """Of every decision and every upload, until it, or a later one, was seen; without those of before anything was."""
    written: dict[str, dict[int, float]] = {"round": {}, "version": {}}
    for wall_s, event in lines:
        if event["kind"] == "asked":
            written["round"].setdefault(event["round"], wall_s)
        elif event["kind"] == "applied":
            written["version"][len(written["version"]) + 1] = wall_s
    found: dict[str, list[float]] = {}
    for name, of_line in written.items():
        seen = [(value, at_s) for value, at_s in shown[name] if at_s is not None]
        first_s = seen[0][1] if seen else 0.0
        reached = ((at_s, next((then for what, then in seen if what >= value), None)) for value, at_s in of_line.items())
        found[name] = [1e3 * (then - at_s) for at_s, then in reached if then is not None and at_s >= first_s]
    return found


def measure(folder: Path, devices: int, rounds: int, *, browser: bool) -> dict[str, dict[str, list[float]]]:
    """By who looked: by what was looked at, all delays."""
    heard: Shown = {"round": [], "version": []}
    shown: dict[str, Any] = {"a listener": heard}
    with demo(folder, devices, rounds, page=True) as running:
        address = running.address()
        running.wait_for_ledger()
        listener = threading.Thread(target=listen, args=(address, heard))
        listener.start()
        if browser:
            shown["a Chromium"] = look(address)
        listener.join()
        running.wait_until_finished()
        lines = lines_of(running.run / "ledger.jsonl")
    return {who: late_ms(lines, seen) for who, seen in shown.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--browser", action="store_true", help="look with a Chromium, too (needs Playwright)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        found = measure(Path(place), given.devices, given.rounds, browser=given.browser)
    named = {"round": "decisions", "version": "uploads"}
    for who, late in found.items():
        for what, times in late.items():
            print(f"{who}: {len(times)} {named[what]}, {spread(times)}")


if __name__ == "__main__":
    main()
