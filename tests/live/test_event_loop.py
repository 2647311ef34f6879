"""The first signal asks for a stop, whenever it comes; the second cuts short."""

import asyncio
import gc
import logging
import signal
import subprocess
import sys

import pytest

from fedtwin.live.event_loop import run_until_stopped

SCENE = """
import asyncio, os, signal
from fedtwin.live.event_loop import StopSignals, run_until_stopped

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
        ("ask(); print(run_until_stopped(make, signals))", "stopped"),
        ("print(run_until_stopped(lambda: make(asks=True), signals))", "stopped"),
        ("print(run_until_stopped(lambda: make(asks=True, deaf=True), signals))", "cut short"),
        ("print(run_until_stopped(lambda: make(asks=True), signals)); ask(); print('records')", "stopped\ncut short"),
        ("run_until_stopped(lambda: (asyncio.sleep(0), print), signals); ask(); print('records')", "records"),
        ("run_until_stopped(lambda: (asyncio.sleep(0), print), signals); ask(); ask(); print('records')", "cut short"),
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


def test_what_nobody_waited_for_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ConnectionResetError("the connection was ended")

    async def forgets() -> str:
        task = asyncio.ensure_future(fails())
        await asyncio.sleep(0)
        del task
        gc.collect()
        return "done"

    assert run_until_stopped(lambda: (forgets(), lambda: None)) == "done"
    (line,) = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert line.getMessage() == "something failed in the background"
    assert line.__dict__["fields"]["error"] == "ConnectionResetError: the connection was ended" and not line.exc_info
