"""The commands' way into the event loop: one coroutine, stopped gracefully by SIGTERM or Ctrl-C, cut short by a second one."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fedtwin.errors import FedtwinError

T = TypeVar("T")


def require_nats() -> None:
    try:
        import nats  # noqa: F401
    except ImportError:
        raise FedtwinError("The live fleet needs nats-py: pip install 'fedtwin[live]'.") from None


def serve(make: Callable[[], tuple[Coroutine[Any, Any, T], Callable[[], None]]]) -> T:
    """Runs the coroutine ``make`` gives; the other thing it gives is called when the process is asked to stop."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        work, stop = make()
        task = asyncio.ensure_future(work)
        asked = 0

        def asked_to_stop() -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                stop()
            else:
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked_to_stop)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return asyncio.run(main())
