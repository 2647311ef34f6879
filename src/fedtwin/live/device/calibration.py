"""What a board measures of itself before it joins: a training tried out, bytes sent to the broker. A second or two."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtwin.config import Config, LearningConfig
from fedtwin.config.schema import ComputeConfig
from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file, write_whole
from fedtwin.live.device import board
from fedtwin.live.device.sending import Sending
from fedtwin.live.device.trainers import CommandTrainer, Trainer, TrainingError, Update
from fedtwin.live.logs import say
from fedtwin.live.wire.ports import Ports, Transport
from fedtwin.live.wire.protocol import MESSAGE_SLACK_BYTES, Tried
from fedtwin.live.wire.troubles import TROUBLES

LONG_ENOUGH_S, GROWTH = 0.25, 4
FIRST_BYTES, MOST_BYTES, LINK_LONG_ENOUGH_S, LINK_TIMEOUT_S = 4096, 262_144, 0.2, 2.0
LEAST_S = 1e-9
Clock = Callable[[], float]


class Calibration(BaseModel):
    """Seconds are wall seconds. ``trained`` says what the training was: it is of no use for another."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    seconds_per_sample: float | None = Field(None, gt=0)
    samples: int | None = Field(None, ge=1)
    cpu_hz: float | None = Field(None, gt=0)
    cycles_per_sample: float | None = Field(None, gt=0)
    update_bytes: int | None = Field(None, ge=1)
    goodput_bps: float | None = Field(None, gt=0)
    trained: str | None = None

    def on_the_clock(self, time_scale: float) -> Tried:
        """As a run with that time scale counts."""
        return Tried(
            cycles_per_sample=None if self.cycles_per_sample is None else self.cycles_per_sample / time_scale,
            update_bits=None if self.update_bytes is None else 8.0 * self.update_bytes,
            goodput_bps=None if self.goodput_bps is None else self.goodput_bps * time_scale,
        )

    def fits(self, config: Config) -> bool:
        return self.trained == trained_by(config)


def trained_by(config: Config) -> str:
    """What the time of a training depends on, and the size of what is sent of it, beside the board and its data."""
    learning = config.learning or LearningConfig()
    share = f" of {learning.top_k:g}" if learning.compress == "top-k" else ""
    sent = "" if learning.compress == "none" else f", sent as {learning.compress}{share}"
    return f"{learning.model}, {learning.local_epochs} epochs in batches of {learning.batch_size}{sent}"


def cpu_hz_within(compute: ComputeConfig, told_hz: float | None) -> float:
    """As the system tells, or as configured; always within what the server takes."""
    return compute.cpu_hz_min if told_hz is None else min(max(told_hz, compute.cpu_hz_floor), 10.0 * compute.cpu_hz_max)


def try_training(trainer: Trainer, config: Config, samples: int, cpu_hz: float, clock: Clock) -> Calibration:
    """More and more samples until it takes a quarter of a second, or all are in; the first step, which is slow, is left out.

    Nothing where the trainer has no ``trial()``: then its first task is the measurement.
    """
    if (trial := getattr(trainer, "trial", None)) is None:
        return Calibration()
    of_samples = not isinstance(trainer, CommandTrainer)  # a command may train on all it has
    count = min(samples, (config.learning or LearningConfig()).batch_size) if of_samples else samples
    try:
        train: Callable[[int], Update] = trial()
        train(count)
        while True:
            begun = clock()
            update = train(count)
            took_s = max(clock() - begun, LEAST_S)
            if count == samples or took_s >= LONG_ENOUGH_S:
                break
            count = min(GROWTH * count, samples)
        update_bytes = Sending(config).size_of(update.body)
    except TrainingError as error:
        say(logging.WARNING, "the training could not be tried out", reason=str(error))
        return Calibration()
    return Calibration(
        seconds_per_sample=took_s / count,
        samples=samples,
        cpu_hz=cpu_hz,
        cycles_per_sample=took_s / count * cpu_hz,
        update_bytes=update_bytes,
        trained=trained_by(config),
    )


async def calibrate(
    transport: Transport | None,
    subject: str,
    ports: Ports,
    trainer: Trainer,
    config: Config,
    samples: int,
    *,
    name: str,
    cpu_hz: float | None,
) -> Calibration:
    """The training first, then the link, if there is one; a second or two, and what was found is said.

    A trainer that cannot be tried out leaves both to its first task.
    """
    if not hasattr(trainer, "trial"):
        cycles = config.compute.cycles_per_sample
        say(logging.INFO, "not measured: the first task will show what a training takes", device=name, believed_cycles=cycles)
        return Calibration()
    say(logging.INFO, "measuring this board", device=name)
    clock, hz = ports.clock.monotonic_s, cpu_hz or cpu_hz_within(config.compute, board.cpu_hz())
    found = await ports.in_a_thread(try_training, trainer, config, samples, hz, clock)
    if transport is not None:
        found = found.model_copy(update={"goodput_bps": await try_link(transport, subject, clock)})
        if found.goodput_bps is None:
            say(logging.WARNING, "the link could not be measured: the first upload will show it", device=name)
    say(
        logging.INFO, "measured", device=name, seconds_per_sample=found.seconds_per_sample,
        cycles_per_sample=found.cycles_per_sample, goodput_bps=found.goodput_bps,
    )  # fmt: skip
    return found


async def try_link(transport: Transport, subject: str, clock: Clock) -> float | None:
    """Bits a second until the broker has read them: more and more bytes, until they take a fifth of a second. None where
    the connection broke, or nothing went through.
    """
    size, reconnects = FIRST_BYTES, transport.reconnects
    while True:
        begun = clock()
        try:
            await transport.publish(subject, b"\0" * size)
            await transport.flush(LINK_TIMEOUT_S)
        except TROUBLES:
            return None
        took_s = max(clock() - begun, LEAST_S)
        if transport.reconnects != reconnects:
            return None
        if took_s >= LINK_LONG_ENOUGH_S or size >= min(MOST_BYTES, transport.max_payload - MESSAGE_SLACK_BYTES):
            return 8.0 * size / took_s
        size = min(GROWTH * size, MOST_BYTES, transport.max_payload - MESSAGE_SLACK_BYTES)


def write_calibration(path: Path, calibration: Calibration) -> None:
    try:
        write_whole(path, (json.dumps(calibration.model_dump(exclude_none=True), indent=2) + "\n").encode())
    except OSError as error:
        raise FedtwinError(f"--out {str(path)!r} cannot be written: {error.strerror}.") from None


def read_calibration(path: Path) -> Calibration:
    try:
        return Calibration.model_validate_json(plain_file(path).read_bytes())
    except OSError as error:
        raise FedtwinError(f"--calibration {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise FedtwinError(f"--calibration {str(path)!r} is not a file that fedtwin calibrate has written.") from None
