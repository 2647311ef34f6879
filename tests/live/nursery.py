"""Edge servers and devices as processes of their own that are there at once: forked from one that has imported everything.

A thousand of them would spend most of their lives with imports.
"""

import asyncio
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtwin.processes import die_with_the_parent, script_left_to_the_parent

IMPORTED = ["fedtwin.cli", "fedtwin.live", "fedtwin.live.server.standby", "tests.live.adding_device"]
CONTEXT = multiprocessing.get_context("forkserver")


class Forked:
    """As a ``subprocess.Popen``: what is asked of one in here."""

    def __init__(self, main: Callable[[], Any], arguments: Sequence[object], output: Path, errors: Path) -> None:
        self._process = CONTEXT.Process(target=_run, args=(main, [str(word) for word in arguments], output, errors))
        CONTEXT.set_forkserver_preload(IMPORTED)
        with script_left_to_the_parent():
            self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("forked", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(main: Callable[[], Any], arguments: list[str], output: Path, errors: Path) -> None:
    """In the new process."""
    os.setsid()
    die_with_the_parent()
    for path, number in ((output, 1), (errors, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.argv = arguments
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGUSR2, _tell_what_is_waited_for)
    main()


def _tell_what_is_waited_for(*_: object) -> None:
    """In a process that goes on, and gets nowhere; one without an event loop has told all by its stack."""
    with suppress(RuntimeError):
        for task in asyncio.all_tasks(asyncio.get_running_loop()):
            task.print_stack(limit=12)
