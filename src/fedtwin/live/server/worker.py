"""The evaluation worker of an edge server: a process of its own, where PyTorch may be imported."""

import subprocess
import sys

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.live.server.place import Place
from fedtwin.live.wire.ports import Clock
from fedtwin.live.wire.real import CLOCK
from fedtwin.supervision import launch, stop

WORKER_PAUSE_S = 5.0
STOP_S = 5.0


class Worker:
    """A process that is started again when it ends, though not all the time."""

    def __init__(self, command: list[str], clock: Clock = CLOCK) -> None:
        self._command, self._clock = command, clock
        self._start()

    def _start(self) -> None:
        self._started = self._clock.monotonic_s()
        self._process = launch(self._command)

    def look_after(self) -> bool:
        """True where it had ended and was started again."""
        if self._process.poll() is None or self._clock.monotonic_s() - self._started <= WORKER_PAUSE_S:
            return False
        self._start()
        return True

    def end(self) -> None:
        """It does not answer any more: the next look starts another."""
        self._process.kill()

    def stop(self) -> None:
        """Asks it to end, and insists after a while, or when cut short."""
        stop(self._process, STOP_S)


def evaluator_command(servers: list[str], run: str, code: str | None, place: Place, logs: list[str]) -> list[str]:
    command = [sys.executable, "-m", "fedtwin", "evaluator", "--run", run, *logs]
    for url in servers:
        command += ["--server", url]
    if code is not None:
        command += ["--code", code]
    credentials = place.credentials_of("evaluator")
    if credentials is not None:
        command += ["--credentials", str(credentials)]
    return [*command, "--insecure"] if place.insecure else command


def initial_model_of(config: Config) -> tuple[int, bytes]:
    """The outputs of the initial model and the model, from a process of its own: this one stays without PyTorch."""
    code = (
        "import sys; from fedtwin.config import Config; from fedtwin.live.server.evaluator import made_for_the_data; "
        "sys.path.append(''); made = made_for_the_data(Config.model_validate_json(sys.stdin.buffer.read())); "
        "sys.stdout.buffer.write(str(made[0]).encode() + bytes([10]) + made[1])"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], input=config.model_dump_json(exclude_none=True).encode(), capture_output=True, check=False
    )
    if made.returncode != 0:
        last = (made.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise FedtwinError(f"The initial model cannot be made: {last.rpartition('FedtwinError: ')[2].rstrip('.')}.")
    outputs, _, model = made.stdout.partition(b"\n")
    return int(outputs), model
