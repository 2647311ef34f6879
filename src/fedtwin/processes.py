"""Processes that leave interruptions to their parent, end when it does, and are found again."""

import _thread
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any

PR_SET_PDEATHSIG = 1
HEARD_AGAIN_S = 0.02
MARK = "fedtwin-answer "


def asked_elsewhere(module: str, function: str, given: Any) -> str | None:
    """What a function gives, a text, in a new process with other hashes of texts; None where it fails."""
    command = (
        f"import pickle, sys; sys.path[:] = sys.argv[1:]; from {module} import {function}; "
        f"print(chr(10) + {MARK!r} + {function}(pickle.load(sys.stdin.buffer)), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", command, *sys.path],
        input=pickle.dumps(given),
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        capture_output=True,
        check=False,
    )
    lines = done.stdout.decode(errors="replace").splitlines()
    return next((line.removeprefix(MARK) for line in lines if line.startswith(MARK)), None)


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


@contextmanager
def interrupts_never_dropped() -> Iterator[None]:
    """An interrupt in a destructor or a weak reference's callback, where Python drops whatever is raised, comes again."""
    usual = sys.unraisablehook

    def come_again() -> None:
        time.sleep(HEARD_AGAIN_S)
        _thread.interrupt_main()

    def dropped(unraisable: "sys.UnraisableHookArgs") -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            with suppress(RuntimeError):  # Python is ending: no thread can be started, nothing is left to interrupt
                _thread.start_new_thread(come_again, ())  # takes no lock, which the code interrupted might hold
        else:
            usual(unraisable)

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = usual


def ended_with_parent() -> Callable[[], None] | None:
    """For ``preexec_fn``: the system sends the child SIGTERM when the thread that started it ends. Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def bind() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return bind


def runs_with(pid: int, argument: str) -> bool:
    """Whether this process lives and has the argument in its command line; pids are used again, command lines hardly."""
    try:
        return pid > 0 and argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self").exists():
            return False
    listed = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return argument in listed.stdout
