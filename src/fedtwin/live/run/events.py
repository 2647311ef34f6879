"""What happens in a live run, one event per line of its ledger. Events are all the state there is: replayed, they give it back.

``at_s`` is the run's clock: wall seconds since the run began, over its time scale.
"""

import hashlib
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fedtwin.live.wire.protocol import Moments

StatusAfter = Literal["idle", "offline", "quarantined"]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    at_s: float


class Began(_Event):
    """The first line: which run this is, its ``config.toml`` word for word, and the digest of the model it begins with."""

    kind: Literal["began"] = "began"
    run: str
    wall_s: float
    config_hash: str
    package_version: str
    protocol: int
    model_bytes: int
    model_sha256: str | None = None
    config: str | None = None

    @property
    def identity(self) -> str:
        """Tells the run from all others of its name; an edge server and a reader of its folder find the same."""
        return hashlib.sha256(f"{self.run} {self.wall_s!r} {self.config_hash} {self.model_sha256}".encode()).hexdigest()


class Joined(_Event):
    """A device nobody knew has announced itself; ``own`` is what is not as configured of it (``wire.protocol.Own``),
    ``measured`` what a board has measured of itself (``wire.protocol.Tried``).

    ``moments`` is what its own samples add to the run's normalisation.
    """

    kind: Literal["joined"] = "joined"
    name: str
    samples: int
    hardware: dict[str, str]
    measures: list[str]
    own: dict[str, float] = Field(default_factory=dict)
    moments: Moments | None = None
    measured: dict[str, float] | None = None


class Limits(_Event):
    """T_max and E_max of the boards from now on, from what ``devices`` of them have measured of themselves."""

    kind: Literal["limits"] = "limits"
    max_time_s: float
    max_energy_j: float
    devices: int


class Resized(_Event):
    """A device has another number of samples than it announced before: this is D_n from here on."""

    kind: Literal["resized"] = "resized"
    name: str
    samples: int


class Normalised(_Event):
    """What everybody normalises by, now and later: gathered from all who had joined and brought samples of their own."""

    kind: Literal["normalised"] = "normalised"
    normalisation: dict[str, list[float]]
    names: list[str]


class Started(_Event):
    """Enough devices are there. From here on they have numbers: these, and then as they join."""

    kind: Literal["started"] = "started"
    names: list[str]


class Heard(NamedTuple):
    """What a device has said of its link and its CPU; None where that is not news."""

    device: int
    gain: float | None
    cpu_hz: float | None


class Told(_Event):
    """What the devices said of themselves since the last such line, as far as it was news: decisions see it from here on."""

    kind: Literal["told"] = "told"
    facts: list[Heard]


class Opened(_Event):
    """A round begins: a channel is free. All who take a synchronous round train the same model."""

    kind: Literal["opened"] = "opened"
    round: int


class Filled(_Event):
    """Nobody more is asked in the synchronous round: M have taken it, or nobody is left."""

    kind: Literal["filled"] = "filled"
    round: int


class Asked(_Event):
    """The policy's choice at round t, with its score and the queues as they stood. Round 0: the first M dispatches."""

    kind: Literal["asked"] = "asked"
    round: int
    device: int
    score: float
    queue: float
    total_queue: float
    known_gain: float | None = None
    known_gain_age_s: float | None = None


class Declined(_Event):
    """The device does not take the round it was asked for last; it is offline if it did not answer at all.

    ``time_s`` and ``energy_j``: what the update would take at full power, where it is declined for the limits.
    """

    kind: Literal["declined"] = "declined"
    device: int
    reason: str
    gain: float | None = None
    cpu_hz: float | None = None
    offline: bool = False
    time_s: float | None = None
    energy_j: float | None = None


class Passed(_Event):
    """Nobody took the round."""

    kind: Literal["passed"] = "passed"
    round: int


class Offered(_Event):
    """Channels that nobody took are offered again: so much later they may be others."""

    kind: Literal["offered"] = "offered"


class Dispatched(_Event):
    """The device took the round it was asked for last: its task, bound to it and to the model's version, and what it predicted.

    ``samples`` is D_n(t); without, it is the number that the device joined with.
    """

    kind: Literal["dispatched"] = "dispatched"
    token: str
    device: int
    round: int
    version: int
    gain: float
    cpu_hz: float
    power_w: float
    compute_s: float
    upload_s: float
    compute_j: float
    upload_j: float
    cost: float
    deadline_s: float
    samples: int | None = None


class KeptUpload(BaseModel):
    """An upload that the aggregation's state cannot be had back without: its file in ``models/``, and all that the rule was
    told with it. ``start`` is the version it was trained from, ``staleness`` counts changes of the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: str
    sha256: str
    start: int
    staleness: int
    samples: float
    round: int


class KeptState(BaseModel):
    """The aggregation's state after an upload, as a file in ``models/``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: str
    sha256: str


class Applied(_Event):
    """An upload was mixed in. Times, energies and cost are those the server believes; ``elapsed_s`` is by its own clock.

    Of a synchronous run: it is kept (``upload``), and mixed in when its round is closed; ``version`` is that of the round.
    The aggregation's state is had back from ``state``, or by applying ``upload`` to the one before; without either it is the
    one that a run would begin with. ``model_sha256`` is the digest of the file that the new version was written to.
    """

    kind: Literal["applied"] = "applied"
    token: str
    device: int
    version: int
    changed: bool
    staleness: int
    late: bool
    compute_s: float
    upload_s: float
    compute_j: float
    upload_j: float
    cost: float
    train_loss: float | None = None
    elapsed_s: float
    reported_s: float
    believed: bool
    sources: dict[str, str]
    link_s: float
    uploaded_bytes: int
    model_sha256: str | None = None
    upload: KeptUpload | None = None
    state: KeptState | None = None


class GivenUp(_Event):
    """The task has come to nothing: its deadline passed, the device failed, or came back without it.

    ``dropped``: it was only too late for its synchronous round. What it is charged is settled when that is closed.
    """

    kind: Literal["given-up"] = "given-up"
    token: str
    device: int
    reason: str
    cost: float
    status: StatusAfter
    dropped: bool = False


class Closed(_Event):
    """A synchronous round has ended, and the uploads that were in time are mixed in, in the order of asking.

    ``took_s`` is what everybody in it is charged. The aggregation's state is in ``state``, or the one that a run would begin
    with.
    """

    kind: Literal["closed"] = "closed"
    round: int
    version: int
    changed: bool
    took_s: float
    model_sha256: str | None = None
    state: KeptState | None = None


class Refused(_Event):
    """A message that was not believed. ``count``: how often this device was refused for this reason so far."""

    kind: Literal["refused"] = "refused"
    name: str
    what: str
    reason: str
    token: str | None = None
    count: int = 1


class StatusChanged(_Event):
    """The device is heard again, or not any more."""

    kind: Literal["status"] = "status"
    device: int
    status: Literal["idle", "offline"]


class Quarantined(_Event):
    """The device failed a check and is left out until then."""

    kind: Literal["quarantined"] = "quarantined"
    name: str
    reason: str
    until_s: float


class _Order(_Event):
    """What a person wanted: ``by`` is the name of the credentials, ``person`` who the command says it was, unchecked; when, by
    the wall clock. All of them are None where nobody did.
    """

    by: str | None = None
    person: str | None = None
    wall_s: float | None = None


class Released(_Order):
    """The device may be asked again: its quarantine is over, or a person has said so."""

    kind: Literal["released"] = "released"
    name: str


class Steered(_Order):
    """No new tasks (pause), tasks again (resume), none for this device until it is released (drain), or the end (finish): no
    new tasks, and when those in flight are over the run is, for this reason.
    """

    kind: Literal["steered"] = "steered"
    command: Literal["pause", "resume", "drain", "finish"]
    name: str | None = None
    reason: str | None = None


class Changed(_Order):
    """A setting has another value from here on; ``round`` is the last that was opened before.

    ``state`` is the aggregation's, where it could not be had back by applying the uploads since it was written last.
    """

    kind: Literal["set"] = "set"
    setting: str
    value: bool | int | float
    round: int
    version: int
    state: KeptState | None = None


class Measured(_Event):
    """The model of a version on the test set, as it is served; ``plain_…`` where that is an average: the model itself."""

    kind: Literal["evaluated"] = "evaluated"
    round: int
    version: int
    model_at_s: float
    energy_j: float
    test_loss: float
    test_accuracy: float | None = None
    test_metric: float | None = None
    plain_test_loss: float | None = None
    plain_test_metric: float | None = None


class Resumed(_Event):
    """The edge server was started again; questions that were open then are answered by nobody."""

    kind: Literal["resumed"] = "resumed"


class Repaired(_Event):
    """What was on disk was damaged, and the run went back to the last state that verified: the line before this one.

    ``lines`` and the ``uploads`` among them were cut off; they are in ``folder``.
    """

    kind: Literal["repaired"] = "repaired"
    version: int
    lines: int
    uploads: int
    folder: str


class Stopped(_Event):
    """The edge server was stopped, or the run is over."""

    kind: Literal["stopped"] = "stopped"
    finished: bool


Event = (
    Began
    | Joined
    | Limits
    | Resized
    | Normalised
    | Started
    | Told
    | Opened
    | Filled
    | Asked
    | Declined
    | Passed
    | Offered
    | Dispatched
    | Applied
    | GivenUp
    | Closed
    | Refused
    | StatusChanged
    | Quarantined
    | Released
    | Steered
    | Changed
    | Measured
    | Resumed
    | Repaired
    | Stopped
)
EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
