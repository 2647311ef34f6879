"""The first signal asks for a stop, whenever it comes; the second cuts short."""

import signal
import subprocess
import sys

import pytest

SCENE = """
import asyncio, os, signal
from fedtwin.live.event_loop import StopSignals, serve

def ask(*_):
    os.kill(os.getpid(), signal.SIGTERM)

async def until_stopped(event, asks, deaf):
    asks and ask()
    await event.wait()
    if deaf:
        ask()
        await asyncio.sleep(60)
    return "stopped"

def make(asks=False, deaf=False):
    event = asyncio.Event()
    return until_stopped(event, asks, deaf), event.set

try:
    with StopSignals() as signals:
        {scene}
except KeyboardInterrupt:
    print("cut short")
"""


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        ("ask(); print(serve(make, signals))", "stopped"),
        ("print(serve(lambda: make(asks=True), signals))", "stopped"),
        ("print(serve(lambda: make(asks=True, deaf=True), signals))", "cut short"),
        ("print(serve(lambda: make(asks=True), signals)); ask(); print('records')", "stopped\ncut short"),
        ("serve(lambda: (asyncio.sleep(0), print), signals); ask(); print('records')", "records"),
        ("serve(lambda: (asyncio.sleep(0), print), signals); ask(); ask(); print('records')", "cut short"),
    ],
    ids=["before", "during", "twice", "during and after", "after", "twice after"],
)
def test_signals(scene: str, said: str) -> None:
    code = SCENE.replace("{scene}", scene)
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout.strip(), run.returncode) == (said, 0), run.stderr


def test_afterwards_signals_are_as_they_were() -> None:
    code = f"{SCENE.replace('{scene}', 'pass')}\nask()"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -signal.SIGTERM
