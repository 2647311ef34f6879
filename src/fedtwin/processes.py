"""Worker processes that leave interruptions to their parent, and end when it does."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait
from types import ModuleType


@contextmanager
def interrupts_left_to_the_parent() -> Iterator[None]:
    """Processes started in here are deaf to Ctrl-C from their first instruction on.

    They inherit the blocked signal. The parent hears what came meanwhile as soon as it leaves.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def script_left_to_the_parent() -> Iterator[None]:
    """Processes started in here do not run the script again that started them, so it needs no ``if __name__ == "__main__"``.

    Python's own way runs it in every worker, so that what it defines is there; ours need nothing of it.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def die_with_the_parent() -> None:
    """Called in a worker: it ends itself when its parent is gone, also when that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def interrupts_kept_for_later() -> Iterator[None]:
    """An interrupt is raised when the block is done: for libraries that would swallow it in one of their callbacks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda *_: came.append(1))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if usual is None else usual)
        if came:
            signal.raise_signal(signal.SIGINT)
