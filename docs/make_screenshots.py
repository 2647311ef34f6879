"""Takes the pictures of the page in docs/page/: ``python docs/make_screenshots.py``.

A factory of thirty devices trains on the digits, once by CU-UCB and once by the random policy; the real server serves both, and
Debian's Chromium looks at it. Needs ``pip install playwright`` and a chromium.
"""

import csv
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import fedtwin

HERE = Path(__file__).parent
OUT = HERE / "page"
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
HALLS = {
    "press": (-300, 120),
    "lathe": (-120, 190),
    "oven": (90, 170),
    "robot": (260, 60),
    "crane": (-230, -90),
    "pump": (130, -150),
}
SETTINGS = {
    "run.rounds": 1200,
    "fleet.channels": 8,
    "learning.dataset": "digits",
    "learning.model": "linear",
    "learning.executor": "serial",
    "learning.evaluate_every_s": 2.0,
}


def write_factory(path: Path) -> Path:
    """Six halls of five machines each."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "x_m", "y_m", "samples", "cpu_hz"])
        for hall, (kind, (x_m, y_m)) in enumerate(HALLS.items()):
            for number in range(5):
                across, down = 74 * (number % 3 - 1) + 9 * hall, 66 * (number // 3) - 33 + 11 * (number % 2)
                rows.writerow(
                    [f"{kind}-{number + 1}", x_m + across, y_m + down, 40 + 4 * number + hall, (1.2 + 0.3 * hall) * 1e9]
                )
    return path


def make_runs(place: Path) -> list[Path]:
    fleet = write_factory(place / "factory.csv")
    folders = []
    for name, policy in (("factory", "cu-ucb"), ("by-chance", "random")):
        given = {**SETTINGS, "fleet.file": str(fleet), "policy.name": policy}
        fedtwin.simulate(fedtwin.load_config(overrides=given), out=place / name)
        folders.append(place / name)
    return folders


@contextmanager
def served(folders: list[Path]) -> Iterator[str]:
    command = [sys.executable, "-m", "fedtwin", "serve", *map(str, folders), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None, "the server did not say where it is"
            yield found[0]
        finally:
            process.terminate()


def ask_what_if(page: Page) -> None:
    page.get_by_label("Energy weight").fill("0.8")
    page.get_by_label("Channels").fill("6")
    page.get_by_role("button", name="Ask the twin").click()
    page.wait_for_selector("[data-measure]", timeout=180_000)


def _save(picture: bytes, path: Path) -> None:
    """With 256 colours, which are enough, in a third of the bytes."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256).save(path, optimize=True)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    half = "#run=factory&at=round:600"
    with tempfile.TemporaryDirectory() as place, served(make_runs(Path(place))) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET.split())

        def shoot(name: str, hash_: str, size: dict[str, int] = DESK, scheme: str = "light", full: bool = False) -> None:
            page = browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1).new_page()  # type: ignore[arg-type]
            page.goto(f"{base}{hash_}")
            page.wait_for_selector(".timebar", timeout=120_000)
            if "whatif" in hash_:
                ask_what_if(page)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(1000)
            _save(page.screenshot(full_page=full), OUT / f"{name}.png")
            page.context.close()

        shoot("fleet", half, {"width": 1440, "height": 1210})
        shoot("fleet_dark", f"{half}&device=7", scheme="dark")
        shoot("device", f"{half}&device=7", {"width": 1440, "height": 1560})
        shoot("whatif", "#run=factory&view=whatif")
        shoot("fidelity", "#run=factory&view=fidelity")
        shoot("runs", "#run=factory&view=runs&with=by-chance")
        shoot("phone", half, PHONE)
        shoot("phone_dark", f"{half}&device=7", PHONE, "dark")
        browser.close()


if __name__ == "__main__":
    main()
