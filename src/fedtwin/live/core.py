"""The edge server without clock, network or disk: who is there, who is asked, which tasks are open, what may happen next.

Whoever drives it asks for the next event (``next_ask``, ``answered``, …), writes it to the ledger, and gives it to ``apply``.
A replay gives the events of a ledger to ``apply``, and the same state comes back. Decisions are the coordinator's, as in the
simulator; costs are always learned on arrival, because an offer is only what a device says of itself.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass

from fedtwin.config import Config, LiveConfig
from fedtwin.coordinator import Coordinator
from fedtwin.draws import Purpose, ranks
from fedtwin.errors import FedtwinError
from fedtwin.live import events
from fedtwin.live.events import Event
from fedtwin.live.protocol import Accept, Decline, Hello
from fedtwin.physics.cost import cost, within
from fedtwin.physics.terms import terms_of
from fedtwin.policies import Policy, knobs_of, load_policy, power_rule
from fedtwin.twin import Twin, new_twin
from fedtwin.twin.update import Offer

REMEMBERED_TOKENS = 10_000
LEAST_COST_OF_NOTHING = 1.0


@dataclass(frozen=True)
class OpenTask:
    """A task in flight, or given up: who has it, from which model, and what the device predicted."""

    sent: events.Dispatched
    changes: int


@dataclass
class Member:
    """A device by its name; its number once the run has started."""

    joined: events.Joined
    device: int | None = None
    quarantined_until_s: float | None = None
    quarantine_reason: str | None = None


class Core:
    """The state of one live run."""

    def __init__(self, config: Config) -> None:
        if config.run.mode != "async":
            raise FedtwinError(f"run.mode = {config.run.mode!r} is not for a live fleet: it is async there.")
        policy = load_policy(config.policy.name)
        if not isinstance(policy, Policy):
            raise FedtwinError(f"policy.name = {config.policy.name!r} knows the true costs: it is for simulations only.")
        self.config = config
        self.live = config.live or LiveConfig()
        self.terms = terms_of(config)
        self.members: dict[str, Member] = {}
        self.names: list[str] = []
        self.open: dict[str, OpenTask] = {}
        self.given_up: OrderedDict[str, OpenTask] = OrderedDict()
        self.closed: OrderedDict[str, str] = OrderedDict()
        self.refusals: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.changes = 0
        self.energy_j = 0.0
        self.applied = 0
        self.selections = 0
        self.began: events.Began | None = None
        self.finished = False
        self.last_at_s = 0.0
        self._policy, self._keeps_limits = policy, power_rule(config) == "optimal"
        self._coordinator: Coordinator | None = None
        self._first: list[int] = []
        self._asked_device: int | None = None
        self._round_is_open = False
        self._waiting = False
        self._task_of: dict[int, str] = {}

    # What is

    @property
    def started(self) -> bool:
        return self._coordinator is not None

    @property
    def coordinator(self) -> Coordinator:
        if self._coordinator is None:
            raise ValueError("the run has not started")
        return self._coordinator

    @property
    def twin(self) -> Twin:
        return self.coordinator.twin

    @property
    def version(self) -> int:
        return self._coordinator.twin.model_version if self._coordinator is not None else 0

    @property
    def round(self) -> int:
        return self._coordinator.round if self._coordinator is not None else 0

    @property
    def channels(self) -> int:
        return min(self.config.fleet.channels, len(self.names))

    @property
    def done(self) -> bool:
        """All rounds have been played and every task has ended."""
        return self.started and self.round >= self.config.run.rounds and not self._round_is_open and not self.open

    def ready(self) -> bool:
        """Whether the run can start."""
        return not self.started and len(self.members) >= (self.live.start_with or self.config.fleet.devices)

    def number_of(self, name: str) -> int | None:
        member = self.members.get(name)
        return member.device if member is not None else None

    def task_of(self, device: int) -> OpenTask | None:
        token = self._task_of.get(device)
        return self.open[token] if token is not None else None

    def is_quarantined(self, name: str) -> bool:
        member = self.members.get(name)
        return member is not None and member.quarantined_until_s is not None

    def overdue(self, at_s: float) -> list[OpenTask]:
        return [task for task in self.open.values() if at_s > task.sent.deadline_s]

    # What may happen next

    def join(self, name: str, hello: Hello, at_s: float) -> events.Joined:
        if hello.samples is None:
            raise ValueError("a device that joins says how many samples it trains on")
        return events.Joined(at_s=at_s, name=name, samples=hello.samples, hardware=hello.hardware, measures=hello.measures)

    def start(self, at_s: float) -> events.Started:
        return events.Started(at_s=at_s, names=sorted(self.members, key=_natural))

    def next_ask(self, at_s: float) -> events.Asked | events.Passed | None:
        """Who is to be asked now; ``Passed`` where a round ends with nobody left to ask; None where nobody is needed."""
        if not self.started or self._waiting or len(self.open) >= self.channels:
            return None
        if self._first:
            device = next((one for one in self._first if self.twin.devices[one].status == "idle"), None)
            if device is None:
                return events.Passed(at_s=at_s, round=0)
            return events.Asked(
                at_s=at_s, round=0, device=device, score=float(self._places[device]), queue=0.0, total_queue=0.0
            )
        coordinator = self.coordinator
        if not self._round_is_open:
            if coordinator.round >= self.config.run.rounds or not self._anyone_idle():
                return None
            coordinator.open_round()
            self._round_is_open = True
        decision = coordinator.choose()
        if decision is None:
            return events.Passed(at_s=at_s, round=coordinator.round)
        return events.Asked(
            at_s=at_s,
            round=decision.round,
            device=decision.device,
            score=decision.score,
            queue=decision.queue,
            total_queue=coordinator.total_queue(),
        )

    @property
    def waits_for_nothing(self) -> bool:
        """Everybody declined, and no upload is on its way that could change that: only time can."""
        return self._waiting and not self.open

    def try_again(self) -> None:
        """A channel that nobody took is offered anew."""
        self._waiting = False

    def answered(
        self, asked: events.Asked, answer: Accept | Decline, token: str, at_s: float
    ) -> events.Dispatched | events.Declined:
        """A task, or why there is none. An offer over the limits is a decline: whoever keeps them is asked next."""
        device = asked.device
        if isinstance(answer, Decline):
            return events.Declined(at_s=at_s, device=device, reason=answer.reason, gain=answer.gain, cpu_hz=answer.cpu_hz)
        if reason := self._impossible(answer):
            return events.Declined(at_s=at_s, device=device, reason=reason)
        time_s, energy_j = answer.compute_s + answer.upload_s, answer.compute_j + answer.upload_j
        return events.Dispatched(
            at_s=at_s,
            token=token,
            device=device,
            round=asked.round,
            version=self.version,
            gain=answer.gain,
            cpu_hz=answer.cpu_hz,
            power_w=answer.power_w,
            compute_s=answer.compute_s,
            upload_s=answer.upload_s,
            compute_j=answer.compute_j,
            upload_j=answer.upload_j,
            cost=cost(self.terms, time_s, energy_j),
            deadline_s=at_s + self.live.deadline_factor * time_s + self.live.deadline_margin_s / self.live.time_scale,
        )

    def unanswered(self, asked: events.Asked, at_s: float, reason: str) -> events.Declined:
        return events.Declined(at_s=at_s, device=asked.device, reason=reason, offline=True)

    def left_out(self, asked: events.Asked, at_s: float) -> events.Declined:
        """It was put in quarantine while it was being asked."""
        return events.Declined(at_s=at_s, device=asked.device, reason="quarantined")

    def give_up(self, task: OpenTask, at_s: float, reason: str, status: events.StatusAfter) -> events.GivenUp:
        """Charged by the server's clock and the predicted energy, and no less than an update at both its limits."""
        sent = task.sent
        charged = cost(self.terms, at_s - sent.at_s, sent.compute_j + sent.upload_j)
        return events.GivenUp(
            at_s=at_s,
            token=sent.token,
            device=sent.device,
            reason=reason,
            cost=max(charged, LEAST_COST_OF_NOTHING),
            status=status,
        )

    def refuse(self, name: str, what: str, reason: str, at_s: float, token: str | None = None) -> events.Refused:
        """Counted by the first word of the reason."""
        count = 1 + self.refusals.get((name, reason.partition(":")[0]), 0)
        return events.Refused(at_s=at_s, name=name, what=what, reason=reason, token=token, count=count)

    def quarantine(self, name: str, reason: str, at_s: float) -> events.Quarantined:
        return events.Quarantined(
            at_s=at_s, name=name, reason=reason, until_s=at_s + self.live.quarantine_s / self.live.time_scale
        )

    # What has happened

    def apply(self, event: Event) -> None:
        """The only place where the state changes (but for the opening of a round, which ``next_ask`` does)."""
        self.last_at_s = max(self.last_at_s, event.at_s)
        match event:
            case events.Began():
                self.began = event
            case events.Joined():
                self._joined(event)
            case events.Started():
                self._started(event)
            case events.Asked():
                self._asked(event)
            case events.Declined():
                self._declined(event)
            case events.Passed():
                self._round_is_open, self._first, self._waiting = False, [], True
            case events.Dispatched():
                self._dispatched(event)
            case events.Applied():
                self._applied(event)
            case events.GivenUp():
                self._given_up(event)
            case events.Refused():
                self.refusals[event.name, event.reason.partition(":")[0]] = event.count
                if len(self.refusals) > REMEMBERED_TOKENS:
                    self.refusals.popitem(last=False)
            case events.StatusChanged():
                self.coordinator.set_status(event.device, event.status)
                self._waiting = self._waiting and event.status != "idle"
            case events.Quarantined():
                self._quarantined(event)
            case events.Released():
                member = self.members[event.name]
                member.quarantined_until_s = member.quarantine_reason = None
                if member.device is not None and member.device not in self._task_of:
                    self.coordinator.set_status(member.device, "offline")
            case events.Stopped():
                self.finished = event.finished
            case events.Measured() | events.Resumed():
                pass

    def _joined(self, event: events.Joined) -> None:
        member = self.members[event.name] = Member(event)
        if self.started:
            member.device = self.coordinator.join(event.samples, event.at_s)
            self.names.append(event.name)
            self._waiting = False

    def _started(self, event: events.Started) -> None:
        self.names = list(event.names)
        samples = []
        for device, name in enumerate(self.names):
            self.members[name].device = device
            samples.append(self.members[name].joined.samples)
        seed = self.config.run.seed
        self.tie_ranks = ranks(seed, Purpose.TIES, len(samples)).tolist()
        self._coordinator = Coordinator(
            new_twin(samples, self.config.objective.min_mean_samples),
            self._policy,
            knobs_of(self.config),
            self.tie_ranks,
            learn_on_selection=False,
        )
        self._places = ranks(seed, Purpose.START, len(samples)).tolist()
        self._first = sorted(range(len(samples)), key=self._places.__getitem__)
        for member in self.members.values():
            if member.quarantined_until_s is not None and member.device is not None:
                self._coordinator.set_status(member.device, "quarantined")

    def _asked(self, event: events.Asked) -> None:
        self._asked_device = event.device
        if event.round == 0:
            self._first.remove(event.device)
            return
        if event.round > self.coordinator.round:
            self.coordinator.open_round()
        self._round_is_open = True
        self._first, self._waiting = [], False
        self.coordinator.mark_asked(event.device)

    def _declined(self, event: events.Declined) -> None:
        if event.offline:
            self.coordinator.set_status(event.device, "offline")
        else:
            self.coordinator.decline(event.device, event.gain, event.cpu_hz, event.at_s)
        self._end_the_first_dispatches()

    def _dispatched(self, event: events.Dispatched) -> None:
        counted = event.round > 0
        offer = Offer(event.gain, event.cpu_hz, event.compute_s, event.cost)
        self.coordinator.accept(event.device, offer, event.at_s, counted=counted)
        self.open[event.token] = OpenTask(event, self.changes)
        self._task_of[event.device] = event.token
        self._round_is_open = False
        self.selections += counted
        if not counted:
            self._end_the_first_dispatches()

    def _end_the_first_dispatches(self) -> None:
        """All channels are taken; or everybody was asked, and the channels left over wait for the first arrival."""
        if self.coordinator.round > 0:
            return
        if len(self.open) >= self.channels:
            self._first = []
        elif not self._first:
            self._waiting = True

    def _applied(self, event: events.Applied) -> None:
        if event.late:
            del self.given_up[event.token]
            self.coordinator.report_late()
        else:
            del self.open[event.token], self._task_of[event.device]
            self.coordinator.report(event.device, event.cost, event.compute_s, event.at_s)
            if self.is_quarantined(self.names[event.device]):
                self.coordinator.set_status(event.device, "quarantined")
        self._waiting = False
        self.changes += event.changed
        self.applied += 1
        self.energy_j += event.compute_j + event.upload_j
        self._close(event.token, "applied")

    def _given_up(self, event: events.GivenUp) -> None:
        task = self.open.pop(event.token)
        self._waiting = False
        del self._task_of[event.device]
        self.coordinator.give_up(event.device, event.cost, event.status)
        if event.status == "quarantined":
            self._close(event.token, "refused")
        else:
            self.given_up[event.token] = task
            if len(self.given_up) > REMEMBERED_TOKENS:
                self.given_up.popitem(last=False)

    def _quarantined(self, event: events.Quarantined) -> None:
        member = self.members.get(event.name)
        if member is None:
            return
        member.quarantined_until_s, member.quarantine_reason = event.until_s, event.reason
        if member.device is not None and member.device not in self._task_of:
            self.coordinator.set_status(member.device, "quarantined")

    def _close(self, token: str, how: str) -> None:
        self.closed[token] = how
        if len(self.closed) > REMEMBERED_TOKENS:
            self.closed.popitem(last=False)

    def _anyone_idle(self) -> bool:
        return any(device.status == "idle" for device in self.twin.devices)

    def _impossible(self, offer: Accept) -> str | None:
        """Why an offer cannot be what a device that keeps to its limits would make."""
        terms, compute = self.terms, self.config.compute
        if not compute.cpu_hz_floor <= offer.cpu_hz <= 10.0 * compute.cpu_hz_max:
            return f"offer: cpu_hz = {offer.cpu_hz:g} is out of range"
        if not within(offer.power_w, terms.max_power_w):
            return f"offer: power_w = {offer.power_w:g} is over max_power_w"
        time_s, energy_j = offer.compute_s + offer.upload_s, offer.compute_j + offer.upload_j
        most = 1.0 if self._keeps_limits else 100.0
        if not within(time_s, most * terms.max_time_s):
            return f"offer: {time_s:g} s is over max_time_s"
        if not within(energy_j, most * terms.max_energy_j):
            return f"offer: {energy_j:g} J is over max_energy_j"
        return None


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """device-2 before device-10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
