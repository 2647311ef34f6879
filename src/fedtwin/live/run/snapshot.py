"""The whole state of a live run as plain JSON, and back: what comes back is what a replay of all its events gives."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.live.run import events
from fedtwin.live.run.asking import Asking
from fedtwin.live.run.back_off import BackOff
from fedtwin.live.run.facts import Facts, Member
from fedtwin.live.run.influence import Influence
from fedtwin.live.run.judged import Judged
from fedtwin.live.run.progress import Progress
from fedtwin.live.run.round import Round
from fedtwin.live.run.settable import config_for_devices, config_with
from fedtwin.live.run.tasks import Tasks
from fedtwin.twin import Twin

SCHEMA_VERSION = 1
AS_THEY_ARE = (
    *("members", "names", "tasks", "asking", "changes", "energy_j", "applied", "began", "finished", "last_at_s", "current"),
    *("selections", "rounds_mixed", "started_s", "back_off", "progress", "influence", "normalisation", "quarantines", "limits"),
    *("paused", "drained", "ending", "judged", "nothings", "changed"),
    "measured_version",
)


class PolicyStates(BaseModel):
    """What the policy keeps of every device, in hexadecimal: its numbers may be anything, NaN too."""

    model_config = ConfigDict(extra="forbid")
    fields: list[str]
    values: list[list[str]]


class Decisions(BaseModel):
    """The coordinator."""

    model_config = ConfigDict(extra="forbid")
    twin: Twin
    round: int
    ranks: list[int]
    states: PolicyStates


class Snapshot(BaseModel):
    """Everything that events have changed."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")
    schema_version: int = SCHEMA_VERSION
    members: dict[str, Member]
    names: list[str]
    tasks: Tasks
    asking: Asking
    refusals: list[tuple[str, str, int]]
    changes: int
    energy_j: float
    applied: int
    began: events.Began | None
    finished: bool
    started_s: float | None
    last_at_s: float
    current: Round | None
    selections: int
    rounds_mixed: int
    back_off: BackOff
    progress: Progress
    influence: Influence
    limits: events.Limits | None = None
    quarantines: int = 0
    measured_version: int = -1
    decisions: Decisions | None
    normalisation: dict[str, list[float]] | None = None
    paused: bool = False
    drained: list[str] = Field(default_factory=list)
    ending: str | None = None
    judged: Judged = Field(default_factory=Judged)
    nothings: dict[int, list[tuple[float, float]]] = Field(default_factory=dict)
    changed: dict[str, bool | int | float] = Field(default_factory=dict)


def snapshot_of(facts: Facts) -> dict[str, Any]:
    """Plain JSON, which nothing that happens later changes."""
    same = {name: getattr(facts, name) for name in AS_THEY_ARE}
    refusals = [(name, reason, count) for (name, reason), count in facts.refusals.items()]
    taken = Snapshot(**same, refusals=refusals, decisions=_decisions_of(facts) if facts.started else None)
    return taken.model_dump(mode="json")


def _decisions_of(facts: Facts) -> Decisions:
    coordinator = facts.coordinator
    kept = PolicyStates(
        fields=list(getattr(facts.policy.state, "_fields", ())),
        values=[[float(value).hex() for value in state] for state in coordinator.states],
    )
    return Decisions(twin=coordinator.twin, round=coordinator.round, ranks=list(coordinator.ranks), states=kept)


def put_back(facts: Facts, snapshot: dict[str, Any], *, decides: bool) -> None:
    """Into facts of which nothing has happened yet. Who ``decides`` needs what the policy had kept."""
    try:
        taken = Snapshot.model_validate(snapshot)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FedtwinError(f"The snapshot cannot be used: {place} = {first['input']!r:.80} ({first['msg']}).") from None
    if taken.schema_version != SCHEMA_VERSION:
        raise FedtwinError(
            f"The snapshot's schema_version = {taken.schema_version} is not {SCHEMA_VERSION}, the one read here."
        )
    for name in AS_THEY_ARE:
        setattr(facts, name, getattr(taken, name))
    facts.use(config_with(facts.given, facts.changed), config_for_devices(facts.given, facts.changed))
    facts.refusals.update({(name, reason): count for name, reason, count in taken.refusals})
    if taken.decisions is not None:
        decisions = taken.decisions
        coordinator = facts.new_coordinator(decisions.twin, decisions.ranks)
        coordinator.go_on(decisions.round, _states(facts, decisions) if decides else None)
        facts.set_coordinator(coordinator)


def _states(facts: Facts, decisions: Decisions) -> Sequence[Any]:
    """Of the policy's own type, or one sentence."""
    kept, wanted = decisions.states, list(getattr(facts.policy.state, "_fields", ()))
    sizes = {len(values) for values in kept.values}
    if kept.fields != wanted or not sizes <= {len(wanted)} or len(kept.values) != len(decisions.twin.devices):
        raise FedtwinError(
            f"The snapshot cannot be used: policy.name = {facts.config.policy.name!r} keeps {wanted or 'nothing'} of every "
            f"device, and the snapshot has {kept.fields or 'nothing'}."
        )
    if facts.policy.state is None:
        return [() for _ in kept.values]
    return [facts.policy.state(*map(float.fromhex, values)) for values in kept.values]
