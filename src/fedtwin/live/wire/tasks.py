"""Tasks of the event loop, ended for sure."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
CANCEL_AGAIN_S = 0.2


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """What ``work`` gives; or None where a stop was asked for first, and ``work`` is given up."""
    task, asked = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await end_tasks([task, asked])


async def end_tasks(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancels until they end: a task that waits for an answer can miss a cancellation, if the answer comes at that moment."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
