import asyncio
import time
from typing import Any

import pytest

from tests.live.simulated.loop import Process, StalledError, VirtualLoop, run_virtually


def test_a_thousand_seconds_pass_without_being_waited_for() -> None:
    async def sleeps() -> float:
        begun = asyncio.get_running_loop().time()
        for _ in range(10):
            await asyncio.sleep(100.0)
        return asyncio.get_running_loop().time() - begun

    begun = time.process_time()
    assert run_virtually(sleeps()) == pytest.approx(1000.0)
    assert time.process_time() - begun < 60.0


def test_what_happens_at_one_moment_happens_in_the_order_in_which_it_was_asked_for() -> None:
    seen: list[int] = []

    async def one(number: int) -> None:
        await asyncio.sleep(1.0)
        seen.append(number)
        await asyncio.sleep(0)
        seen.append(100 + number)

    async def many() -> None:
        await asyncio.gather(*(one(number) for number in range(50)))

    run_virtually(many())
    assert seen == [*range(50), *range(100, 150)]


def test_timeouts_events_queues_and_threads_work() -> None:
    async def all_of_it() -> tuple[float, str, int]:
        loop, event, queue = asyncio.get_running_loop(), asyncio.Event(), asyncio.Queue[str]()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(event.wait(), 5.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await event.wait()
        loop.call_later(2.0, queue.put_nowait, "came")
        word = await queue.get()
        return loop.time() - 1000.0, word, await asyncio.to_thread(lambda: 3)

    at_s, word, number = run_virtually(all_of_it())
    assert at_s == pytest.approx(12.0)
    assert (word, number) == ("came", 3)


def test_an_error_in_a_thread_comes_out_of_it() -> None:
    def fails() -> None:
        raise ValueError("no")

    async def asks() -> None:
        await asyncio.to_thread(fails)

    with pytest.raises(ValueError, match="no"):
        run_virtually(asks())


def test_waiting_for_what_cannot_come_is_an_error_that_names_who_waits() -> None:
    async def waits() -> None:
        waiter = asyncio.create_task(asyncio.Event().wait(), name="the-waiter")
        await waiter

    with pytest.raises(StalledError, match=r"nothing can ever happen after 1000 s.*the-waiter"):
        run_virtually(waits())


def test_something_that_is_ready_for_ever_is_an_error() -> None:
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StalledError, match="time stands still"):
        run_virtually(spins(), VirtualLoop(most_steps=1_000))


class Ticking:
    """A process that writes down when it ticks, every second."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop, self.process = loop, Process("ticking")
        self.ticks: list[float] = []
        self.ended = False
        loop.create_task(self._tick(), context=self.process.context)

    async def _tick(self) -> None:
        try:
            while True:
                await asyncio.gather(asyncio.sleep(1.0), asyncio.create_task(asyncio.sleep(0.5)))
                self.ticks.append(self.loop.time() - 1000.0)
        finally:
            self.ended = True


def with_ticking(faults: Any) -> Ticking:
    loop = VirtualLoop()
    found: list[Ticking] = []

    async def main() -> None:
        found.append(Ticking(loop))
        await faults(loop, found[0].process)

    run_virtually(main(), loop)
    return found[0]


def test_a_paused_process_does_nothing_and_its_clock_goes_on() -> None:
    async def faults(loop: VirtualLoop, process: Process) -> None:
        await asyncio.sleep(2.5)
        loop.pause(process)
        await asyncio.sleep(10.0)
        loop.go_on(process)
        await asyncio.sleep(2.2)

    assert with_ticking(faults).ticks == pytest.approx([1.0, 2.0, 12.5, 13.5, 14.5])


def test_a_killed_process_ends_with_all_that_it_began() -> None:
    async def faults(loop: VirtualLoop, process: Process) -> None:
        await asyncio.sleep(2.5)
        await loop.kill(process)
        assert process.living_tasks() == []
        await asyncio.sleep(10.0)

    ticking = with_ticking(faults)
    assert ticking.ticks == pytest.approx([1.0, 2.0])
    assert ticking.ended


def test_a_process_dies_at_any_step_of_its_own() -> None:
    steps = []
    for step in range(1, 12):

        async def faults(loop: VirtualLoop, process: Process, step: int = step) -> None:
            done = asyncio.Event()
            process.dies, process.dies_at_step = done.set, step
            await asyncio.wait_for(done.wait(), 60.0)
            steps.append(process.steps)
            await loop.kill(process)

        with_ticking(faults)
    assert steps == sorted(steps)
    assert steps[0] >= 1


def test_the_same_program_does_the_same() -> None:
    def trace() -> list[float]:
        async def faults(loop: VirtualLoop, process: Process) -> None:
            for wait_s in (0.3, 0.7, 1.9):
                await asyncio.sleep(wait_s)
                loop.pause(process)
                await asyncio.sleep(wait_s)
                loop.go_on(process)

        return with_ticking(faults).ticks

    assert trace() == trace()
