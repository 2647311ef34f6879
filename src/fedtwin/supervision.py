"""Commands as processes of their own: deaf to our Ctrl-C, ended with us, stopped in good order, never left behind."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from fedtwin.processes import ended_with_parent

Process = subprocess.Popen[bytes]
Output = IO[bytes] | int
PAUSE_S = 0.01


def launch(
    command: Sequence[str],
    *,
    output: Output | None = None,
    errors: Output | None = None,
    environment: Mapping[str, str] | None = None,
    outlives_us: bool = False,
) -> Process:
    """Starts a command in a session of its own, so that Ctrl-C does not reach it; it hears nothing and ends with us."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env=environment,
        start_new_session=True,
        preexec_fn=None if outlives_us else ended_with_parent(),
    )


def stop(process: Process, limit_s: float) -> int:
    """Asks it to end, and insists after a while, or when cut short. Gives its exit code; stopping it again does nothing."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
    finally:
        process.kill()
        process.wait()
    return process.returncode


def stop_group(process: Process, limit_s: float) -> None:
    """The same for a command and all that it has started and that has not left it; somebody else may be waiting for it."""

    def is_gone() -> bool:
        process.poll()  # else it would be there until somebody asks how it ended
        return not _signalled(process.pid, 0)

    if _signalled(process.pid, signal.SIGTERM) and not wait_until(is_gone, limit_s):
        _signalled(process.pid, signal.SIGKILL)


def exit_code(process: Process, limit_s: float, stop_s: float) -> int | None:
    """When it has ended; what it leaves running is not waited for, and asked to end. None where it took longer than ``limit_s``
    and was stopped with its group.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        stop_group(process, stop_s)

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        code = process.wait()
    finally:
        timer.cancel()
    _signalled(process.pid, signal.SIGTERM)
    return None if late.is_set() else code


def _signalled(group: int, number: int) -> bool:
    """Whether anybody was there to hear it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS does not permit what is meant for the dead
        return False
    return True


def wait_until(found: Callable[[], Any], limit_s: float) -> Any:
    """The first true value, or what there is when the time is over."""
    end = time.monotonic() + limit_s
    while not (value := found()) and time.monotonic() < end:
        time.sleep(PAUSE_S)
    return value


class ProcessGroup:
    """Processes by name, with what they say in ``NAME.out`` and ``NAME.log`` of a folder. All end with the block.

    One that is started again under its name goes on in the same files. With ``stop_s = 0`` the end is a kill.
    """

    def __init__(self, folder: Path, *, stop_s: float = 15.0) -> None:
        self.folder, self._stop_s = folder, stop_s
        self.processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[object]) -> Process:
        with (self.folder / f"{name}.out").open("ab") as output, (self.folder / f"{name}.log").open("ab") as errors:
            process = self.processes[name] = launch([str(word) for word in command], output=output, errors=errors)
        return process

    def log(self, name: str) -> str:
        """What a process has said on standard error so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def last_words(self, name: str) -> str:
        """The sentence that a command of ours ended with."""
        lines = self.log(name).strip().splitlines()
        return lines[-1].removeprefix("error: ") if lines else "without a word."

    def stop(self) -> None:
        """All at once: each has the whole time to end by itself."""
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)  # one that was frozen does not hear anything else
            (process.terminate if self._stop_s > 0 else process.kill)()
        end = time.monotonic() + self._stop_s
        try:
            for process in self.processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(end - time.monotonic(), 0.0))
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
