"""Tasks end when they are told to."""

import asyncio

from fedtwin.live.wire.tasks import end_tasks


def test_a_task_that_misses_its_cancellation_is_ended_all_the_same() -> None:
    async def deaf_once() -> None:
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            await asyncio.sleep(60.0)  # as when an answer and the cancellation come at the same moment

    async def main() -> None:
        tasks = [asyncio.create_task(deaf_once()), asyncio.create_task(asyncio.sleep(60.0))]
        await asyncio.sleep(0)
        await asyncio.wait_for(end_tasks(tasks), timeout=30.0)
        assert all(task.done() for task in tasks)

    asyncio.run(main())
