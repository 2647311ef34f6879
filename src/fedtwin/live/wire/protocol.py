"""Everything edge server and devices say to each other: subjects and messages. docs/protocol.md explains them.

Messages are JSON; models travel as safetensors bytes, never as pickle. Times are seconds of the run's clock (wall seconds over
the run's time scale), energies joules. Every number of a report says whether it was measured or modelled.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fedtwin.errors import FedtwinError

PROTOCOL_VERSION: Literal[1] = 1
NAME = r"^[A-Za-z0-9_-]{1,64}$"
EDGE = "edge"  # the edge server's own name, at the broker and among the things of the twin's service
FAREWELL = b"farewell"  # on ``call``: the edge server ends, and its broker perhaps with it
TOKEN_HEADER = "Fedtwin-Token"
MESSAGE_SLACK_BYTES = 4096  # headers and JSON beside a model in one message
UPLOAD_SLACK_BYTES = 65536  # an upload may be so much larger than the model: other programs write longer headers

Token = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Source = Literal["measured", "modelled"]
Text = Annotated[str, Field(max_length=500)]
Identity = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
MOST_SECONDS, MOST_JOULES = 1e9, 1e12
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
Joules = Annotated[float, Field(ge=0, le=MOST_JOULES)]
Gain = Annotated[float, Field(gt=1e-60, le=1.0)]
CpuHz = Annotated[float, Field(ge=1e6, le=1e12)]
Watts = Annotated[float, Field(ge=0, le=1e6)]
Loss = Annotated[float, Field(ge=-1e30, le=1e30)]
Amount = Annotated[float, Field(ge=1e-40, le=1e40)]
Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=10**12)], ...], Field(max_length=16)]
MOST_TENSORS = 4096
MOST_CHANNELS = 4096
Normalised = dict[str, list[float]]
Command = Literal["pause", "resume", "drain", "release", "set", "finish"]
MOST_FILES, MOST_CODE_BYTES = 200, 256 * 1024


class Subjects:
    """The subjects, buckets and the stream of one run. A device speaks and listens under its own name only."""

    def __init__(self, run: str) -> None:
        root = f"fedtwin.{run}"
        self.run = run
        self.call = f"{root}.call"
        self.evaluate = f"{root}.evaluate"
        self.pulse = f"{root}.pulse"
        self.lease = f"{root}.lease"
        self.admin = f"{root}.admin"
        self.ledger = f"{root}.ledger"
        self._root = root
        self.stream = f"fedtwin-{run}-uploads"
        self.lease_tape = f"fedtwin-{run}-lease"
        self.ledger_tape = f"fedtwin-{run}-ledger"
        self.files_bucket = f"fedtwin-{run}-files"
        self.twin_bucket = f"fedtwin-{run}-twin"
        self.models_bucket = f"fedtwin-{run}-models"

    def hello(self, device: str) -> str:
        return f"{self._root}.hello.{device}"

    def beat(self, device: str) -> str:
        return f"{self._root}.beat.{device}"

    def ask(self, device: str) -> str:
        return f"{self._root}.ask.{device}"

    def task(self, device: str) -> str:
        return f"{self._root}.task.{device}"

    def upload(self, device: str) -> str:
        return f"{self._root}.upload.{device}"

    def result(self, device: str) -> str:
        return f"{self._root}.result.{device}"

    def trial(self, device: str) -> str:
        """Nobody listens here: a board measures how long its bytes take to the broker."""
        return f"{self._root}.trial.{device}"

    def uploads_bucket(self, device: str) -> str:
        return f"fedtwin-{self.run}-from-{device}"


class Message(BaseModel):
    """Frozen; an unknown key, NaN or infinity is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    protocol: Literal[1] = PROTOCOL_VERSION

    def encoded(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()


class Telemetry(Message):
    """What a device knows of itself right now; all of it may be missing. A heartbeat, also from an MQTT client."""

    gain: Gain | None = None
    gain_source: Source = "modelled"
    cpu_hz: CpuHz | None = None
    cpu_source: Source = "modelled"
    temperature_c: Annotated[float, Field(ge=-100, le=200)] | None = None
    busy: bool = False


class Own(BaseModel):
    """What a device has of its own in place of the configured value: p_n^max, c_n, z_n, its T_max and E_max.

    ``samples_spread``: its D_n(t) is within ``samples`` · (1 ± this).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    max_power_w: Amount | None = None
    cycles_per_sample: Amount | None = None
    update_bits: Amount | None = None
    max_time_s: Amount | None = None
    max_energy_j: Amount | None = None
    samples_spread: Annotated[float, Field(ge=0, le=0.99)] | None = None

    @property
    def given(self) -> dict[str, float]:
        return self.model_dump(exclude_none=True)


class Tried(BaseModel):
    """What a board has measured of itself before it joined; nothing where only a task can show it, as of a user's command.

    Cycles and goodput are on the run's clock; ``time_s`` and ``energy_j`` are of one update at full power.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    cycles_per_sample: Amount | None = None
    update_bits: Amount | None = None
    goodput_bps: Amount | None = None
    time_s: Seconds | None = None
    energy_j: Joules | None = None

    @property
    def given(self) -> dict[str, float]:
        return self.model_dump(exclude_none=True)


class Channels(BaseModel):
    """Of the numbers of every channel that a device holds: how many, their mean, and the sum of squared differences from it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    count: Annotated[float, Field(gt=0, le=1e15)]
    mean: Annotated[list[Annotated[float, Field(ge=-1e38, le=1e38)]], Field(max_length=MOST_CHANNELS)]
    squares: Annotated[list[Annotated[float, Field(ge=0, le=1e90)]], Field(max_length=MOST_CHANNELS)]

    @model_validator(mode="after")
    def _one_of_each(self) -> "Channels":
        if len(self.mean) != len(self.squares) or not self.mean:
            raise ValueError("mean and squares need one number each per channel")
        return self


class Moments(BaseModel):
    """What a device's own samples, and the targets of a regression, add to the run's normalisation; no sample is told.

    ``features``: their names, where they have any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    samples: Channels
    targets: Channels | None = None
    features: list[Annotated[str, Field(max_length=100)]] | None = Field(None, max_length=MOST_CHANNELS)


class Hello(Message):
    """A device announces itself, or is heard again after a reconnect. Without ``samples`` it only asks for the settings.

    ``fresh``: the device has just been started, so a task it had before is lost. ``tensors``: the names and shapes of the
    network that it will train, where it knows them. ``own``: what is not as configured of it. ``measured``: of a board; an
    emulated device has none. ``moments``: of its own data. ``code``: the source of the run's own code is wanted. Another
    number of samples than before is what it has now.
    """

    samples: Annotated[int, Field(ge=1, le=10**12)] | None = None
    fresh: bool = False
    hardware: dict[Annotated[str, Field(max_length=40)], Annotated[str, Field(max_length=200)]] = Field(
        default_factory=dict, max_length=20
    )
    measures: list[Annotated[str, Field(max_length=40)]] = Field(default_factory=list, max_length=20)
    tensors: dict[Annotated[str, Field(max_length=200)], Shape] | None = Field(None, max_length=MOST_TENSORS)
    own: Own | None = None
    measured: Tried | None = None
    moments: Moments | None = None
    code: Literal[True] | None = None


class Welcome(Message):
    """The edge server's answer to a hello: the run's settings, or a refusal. An object is needed where a model is too large.

    ``normalisation`` is the run's, once it has gathered one; where the settings have it, it stands there.
    ``code``: the source of the run's own model by its path, where that was wanted and the operator ships it.
    ``identity`` (``Began.identity``) tells the run from others of its name, where devices keep what a compression left out.
    """

    accepted: bool
    reason: Text | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    time_scale: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    heartbeat_s: Annotated[float, Field(gt=0, le=1e6)] = 5.0
    fleet_is_drawn: bool = True
    normalisation: Normalised | None = None
    code: dict[Annotated[str, Field(max_length=300)], str] | None = Field(None, max_length=MOST_FILES)
    identity: Identity | None = None


class Ask(Message):
    """Will you take this round? ``clock_s`` is the run's clock, for a device that emulates its link.

    ``max_time_s``, ``max_energy_j`` and ``energy_weight`` are those that hold, where they are not those of the settings.
    """

    round: Annotated[int, Field(ge=0)]
    clock_s: Annotated[float, Field(ge=0)] = 0.0
    max_time_s: Amount | None = None
    max_energy_j: Amount | None = None
    energy_weight: Annotated[float, Field(ge=0, le=1)] | None = None


class Accept(Message):
    """The device takes the round: its link, its CPU, the power it chose and what the update will take.

    ``samples`` is D_n(t), where it is not the number of its hello.
    """

    kind: Literal["accept"] = "accept"
    gain: Gain
    cpu_hz: CpuHz
    power_w: Watts
    compute_s: Seconds
    upload_s: Seconds
    compute_j: Joules
    upload_j: Joules
    samples: Annotated[int, Field(ge=1, le=10**12)] | None = None


class Decline(Message):
    """The device does not take the round, and why; one of ``power.REASONS``, or a sentence of its own.

    ``time_s`` and ``energy_j``: what the update would take at full power, where it is declined for the limits.
    """

    kind: Literal["decline"] = "decline"
    reason: Text
    gain: Gain | None = None
    cpu_hz: CpuHz | None = None
    time_s: Seconds | None = None
    energy_j: Joules | None = None


class Task(Message):
    """A model to train. It follows in the same message, or lies in the object store under ``object_name``."""

    token: Token
    round: Annotated[int, Field(ge=0)]
    version: Annotated[int, Field(ge=0)]
    clock_s: Annotated[float, Field(ge=0)] = 0.0
    model_bytes: Annotated[int, Field(ge=0)]
    object_name: str | None = None


class Drop(Message):
    """The synchronous round of this task has ended without it: nobody wants the update any more."""

    kind: Literal["drop"] = "drop"
    token: Token


class Reading(Message):
    """A number with where it comes from."""

    value: Annotated[float, Field(ge=0, le=1e12)]
    source: Source


class Done(Message):
    """The update has been uploaded: as the message before this one, or as an object."""

    kind: Literal["done"] = "done"
    token: Token
    version: Annotated[int, Field(ge=0)]
    samples: Annotated[int, Field(ge=1, le=10**12)]
    model_bytes: Annotated[int, Field(ge=0)]
    train_loss: Loss | None = None
    object_name: Annotated[str, Field(max_length=100)] | None = None
    cpu_hz: Annotated[float, Field(ge=1e6, le=1e12)]
    cpu_source: Source
    power_w: Watts
    compute_s: Reading
    upload_s: Reading
    compute_j: Reading
    upload_j: Reading
    link_s: Reading


class Failed(Message):
    """The training did not come to an end; the task is over."""

    kind: Literal["failed"] = "failed"
    token: Token
    reason: Text


class Evaluate(Message):
    """Asks the evaluation worker for loss and metric of the model that follows, or lies in the object store."""

    model_bytes: int
    object_name: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    normalisation: Normalised | None = None


class Evaluated(Message):
    """Its answer; where the metric is the accuracy, it stands in both."""

    test_loss: float
    test_accuracy: float | None = None
    test_metric: float | None = None


class NotEvaluated(Message):
    """Or why there is none."""

    reason: Text


class Order(Message):
    """What a person wants of the edge server; ``person`` is who gives the order, by his own words.

    ``device``: whom to release or drain. ``setting``: what to set, to this ``value``. ``identity``: which run of that name is
    meant (``Began.identity``); without, the one that is there.
    """

    command: Command
    device: Annotated[str, Field(pattern=NAME)] | None = None
    setting: Annotated[str, Field(max_length=100)] | None = None
    value: Any = None
    person: Annotated[str, Field(max_length=200)] | None = None
    identity: Identity | None = None

    @model_validator(mode="after")
    def _what_it_is_about(self) -> "Order":
        if (self.device is not None) != (self.command in ("release", "drain")):
            raise ValueError("release and drain name a device, the others none")
        if (self.setting is not None) != (self.command == "set"):
            raise ValueError("set names a setting, the others none")
        return self


class Ordered(Message):
    """Whether it was done, and a sentence for the person."""

    done: bool
    words: Text


Answer = Annotated[Accept | Decline, Field(discriminator="kind")]
Result = Annotated[Done | Failed, Field(discriminator="kind")]
ANSWER: TypeAdapter[Accept | Decline] = TypeAdapter(Answer)
RESULT: TypeAdapter[Done | Failed] = TypeAdapter(Result)
EVALUATION: TypeAdapter[Evaluated | NotEvaluated] = TypeAdapter(Evaluated | NotEvaluated)


def check_name(what: str, name: str) -> None:
    """Of a run or a device."""
    if not re.fullmatch(NAME, name):
        raise FedtwinError(f"{what} {name!r} is not allowed: 1 to 64 letters, digits, - and _.")


def check_device_name(name: str) -> None:
    check_name("NAME", name)
    if name == EDGE:
        raise FedtwinError(f"NAME {name!r} is not allowed: it is the edge server's own.")


def with_body(message: Message, body: bytes) -> list[bytes]:
    """A message with a model behind it: the JSON, a line feed, the bytes."""
    return [message.encoded(), b"\n", body]


def split_body(data: bytes) -> tuple[bytes, memoryview]:
    """The two halves of a message made by ``with_body``."""
    end = data.find(b"\n")
    return (data, memoryview(b"")) if end < 0 else (data[:end], memoryview(data)[end + 1 :])


def misfit(error: ValidationError) -> str:
    """What is wrong with a message, in a few words."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"schema: {place} {first['msg']}"[:300] if place else f"schema: {first['msg']}"[:300]
