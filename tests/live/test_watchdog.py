"""A loop that hangs is said, with its place; one that is busy, or idle, is not."""

import asyncio
import time

import pytest

from fedtwin.live.watchdog import LOOKS, Watchdog

LOOK_S = 0.02


def hang() -> None:
    time.sleep(3 * LOOKS * LOOK_S)


def test_a_loop_that_hangs_is_said_once_with_the_place(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Watchdog(LOOK_S):
            await asyncio.sleep(LOOK_S)
            hang()
            await asyncio.sleep(5 * LOOK_S)

    asyncio.run(main())
    (said,) = caplog.records
    assert said.getMessage().startswith("the edge server hangs since") and said.levelname == "ERROR"
    assert said.__dict__["fields"]["where"].startswith("hang (") and "test_watchdog.py" in said.__dict__["fields"]["where"]


def test_a_loop_that_goes_on_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Watchdog(0.1):
            for _ in range(3 * LOOKS):
                time.sleep(0.02)
                await asyncio.sleep(0.02)

    asyncio.run(main())
    assert not caplog.records
