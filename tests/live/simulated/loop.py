"""An event loop with virtual time, and processes in it that can be paused and killed.

Nothing is waited for: when nothing is ready, time jumps to the next timer. What is ready runs in the order in which it became
so, and timers of one moment in the order in which they were set: the same program does the same, always.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
MOST_STEPS_AT_ONE_MOMENT = 100_000
FEW_TIMERS = 1_000
THREAD_S = 0.001


class Process:
    """What is stopped, killed and started as one: every task that was begun in its context, and those that they begin."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0
        self.paused = self.dead = False
        self.dies_at_step: int | None = None
        self.dies: Callable[[], None] = lambda: None
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._held: list[Step] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def hold(self, step: "Step") -> None:
        self._held.append(step)

    def released(self) -> list["Step"]:
        held, self._held = self._held, []
        return held

    def living_tasks(self) -> list[asyncio.Task[Any]]:
        """In the order in which they were begun."""
        self.tasks = {task: None for task in self.tasks if not task.done()}
        return list(self.tasks)


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class StalledError(RuntimeError):
    """Nothing is ready, and no timer will ever make it so; or something is ready for ever, and time does not pass."""


class Step(asyncio.TimerHandle):
    """What runs next, or at its time; cheaper than asyncio's own, of which a schedule has thousands."""

    __slots__ = ("process",)

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, when: float = 0.0) -> None:
        self._callback, self._args, self._context, self._when = callback, args, context, when
        self._cancelled = self._scheduled = False
        self.process = context.get(PROCESS)

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


def _nothing() -> None:
    pass


class VirtualLoop(asyncio.BaseEventLoop):
    """``time()`` passes by jumps only. The work of a thread is done here, ``THREAD_S`` after it was asked for."""

    def __init__(self, begin_s: float = 1_000.0, most_steps: int = MOST_STEPS_AT_ONE_MOMENT) -> None:
        super().__init__()
        self._now_s, self._most_steps = begin_s, most_steps
        self._queue: deque[Step] = deque()
        self._timers: list[tuple[float, int, Step]] = []
        self._set = self._steps = 0
        self._purge_at = FEW_TIMERS
        self.troubles: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, trouble: self.troubles.append(trouble))

    def time(self) -> float:
        return self._now_s

    # What asyncio asks of a loop

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        step = Step(callback, args, copy_context() if context is None else context)
        self._queue.append(step)
        return step

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        step = Step(callback, args, copy_context() if context is None else context, when)
        self._set += 1
        heapq.heappush(self._timers, (when, self._set, step))
        return step

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **named)
        context = named.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks[task] = None
            if len(process.tasks) > FEW_TIMERS:
                process.living_tasks()
        return task

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:  # noqa: ARG002
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(THREAD_S, work)
        return future

    def _run_once(self) -> None:
        """Called by ``run_forever`` until the loop is stopped: all that is ready now."""
        queue = self._queue
        if not queue:
            self._jump()
        self._steps += len(queue)
        if self._steps > self._most_steps:
            self._steps = 0
            raise StalledError(f"time stands still at {self._now_s:g} s: something is ready again and again.")
        for _ in range(len(queue)):
            step = queue.popleft()
            if step._cancelled:
                continue
            process = step.process
            if process is not None:
                if process.paused:
                    process.hold(step)
                    continue
                process.steps += 1
                if process.steps == process.dies_at_step:
                    process.dies()
            try:
                step._context.run(step._callback, *step._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"Exception in callback {step._callback!r}", "exception": error})

    def _jump(self) -> None:
        timers = self._timers
        if len(timers) > self._purge_at:
            timers[:] = [timer for timer in timers if not timer[2]._cancelled]
            heapq.heapify(timers)
            self._purge_at = 2 * len(timers) + FEW_TIMERS
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise StalledError(f"nothing can ever happen after {self._now_s:g} s; still waiting: {', '.join(waiting)}.")
        if timers[0][0] > self._now_s:
            self._now_s, self._steps = timers[0][0], 0
        while timers and timers[0][0] <= self._now_s:
            self._queue.append(heapq.heappop(timers)[2])

    # Processes

    def pause(self, process: Process) -> None:
        """As SIGSTOP: whatever becomes ready in it waits, timers included."""
        process.paused = True

    def go_on(self, process: Process) -> None:
        """As SIGCONT."""
        process.paused = False
        self._queue.extend(process.released())

    async def kill(self, process: Process) -> None:
        """Ends its tasks. Whoever kills first makes sure that nothing of what they do on their way out is seen outside."""
        process.dead, process.dies_at_step = True, None
        self.go_on(process)
        while tasks := process.living_tasks():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.0)
        for task in tasks:
            task.exception()


def run_virtually(work: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """What ``work`` gives, without waiting for anything."""
    loop = loop or VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
