"""The state of a live run: who is there, which tasks are open, the coordinator. It changes by events only.

A replay gives the events of a ledger to ``apply``, and the same state comes back.
"""

from collections import OrderedDict
from dataclasses import dataclass

from fedtwin.config import Config, LiveConfig
from fedtwin.coordinator import Coordinator
from fedtwin.draws import Purpose, ranks
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.formulas.terms import Quantities, Terms, terms_of
from fedtwin.formulas.timeout import timeout_of
from fedtwin.live.run import events
from fedtwin.live.run.back_off import BackOff
from fedtwin.live.run.events import Event
from fedtwin.live.run.influence import Influence
from fedtwin.live.run.progress import Progress
from fedtwin.live.run.round import Round, Selection
from fedtwin.policies import OraclePolicy, Policy, Prediction, knobs_of, plain_knobs_of, policy_of
from fedtwin.prediction import predict
from fedtwin.twin import Twin, new_twin
from fedtwin.twin.update import Offer

REMEMBERED_TOKENS = 10_000
SUPERSEDED = "given up, and a newer one since"


@dataclass(frozen=True)
class OpenTask:
    """A task in flight, or given up: who has it, from which model, and what the device predicted.

    ``chosen``: another device could have been asked in its place.
    """

    sent: events.Dispatched
    changes: int
    chosen: bool = True


@dataclass
class Member:
    """A device by its name; its number once the run has started."""

    joined: events.Joined
    device: int | None = None
    quarantined_until_s: float | None = None
    quarantine_reason: str | None = None

    def terms(self, configured: Terms) -> Terms:
        """Those of the run, and what is the device's own in their place."""
        return configured._replace(**{name: self.joined.own[name] for name in Quantities._fields if name in self.joined.own})


class State:
    """What is, and how it changes: only by ``apply``. Who only replays a ledger brings a policy that is never asked."""

    def __init__(self, config: Config, policy: Policy | OraclePolicy | None = None) -> None:
        self._knobs = knobs_of(config) if policy is None else plain_knobs_of(config)
        policy = policy or policy_of(config)
        if not isinstance(policy, Policy):
            raise FedtwinError(f"policy.name = {config.policy.name!r} knows the true costs: it is for simulations only.")
        self.config = config
        self.live = config.live or LiveConfig()
        self.terms = terms_of(config)
        self.sync, self.timeout_s = config.run.mode == "sync", timeout_of(config)
        self.members: dict[str, Member] = {}
        self.names: list[str] = []
        self.open: dict[str, OpenTask] = {}
        self.given_up: OrderedDict[str, OpenTask] = OrderedDict()
        self.closed: OrderedDict[str, str] = OrderedDict()
        self.refusals: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.changes = 0
        self.energy_j = 0.0
        self.applied = 0
        self.began: events.Began | None = None
        self.finished = False
        self.last_at_s = 0.0
        power = policy.power if config.policy.power == "scheme" else config.policy.power
        self._policy, self._keeps_limits = policy, power == "optimal"
        self._coordinator: Coordinator | None = None
        self._first: list[int] = []
        self._round_is_open = False
        self._waiting = False
        self._task_of: dict[int, str] = {}
        self.current: Round | None = None
        self.selections = self._rounds_mixed = 0
        self.back_off, self.progress = BackOff(self.live.back_off_s, self.live.time_scale), Progress()
        self.influence = Influence()

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
        """Uploads mixed in; of a synchronous run rounds, whose model changes when they are closed."""
        if self.sync:
            return self._rounds_mixed
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
        if self.sync:
            return self.started and self.current is None and self.selections_left == 0
        return self.started and self.rounds_left == 0 and not self._round_is_open and not self.open

    @property
    def rounds_left(self) -> int:
        """Rounds that are still to be opened; those that came to nothing do not count, unless as many did so in a row."""
        return 0 if self.is_barren else max(self.config.run.rounds - self.rounds_counted, 0)

    @property
    def rounds_counted(self) -> int:
        """Rounds that led to something, or may still."""
        return self.round - self.progress.given_up

    @property
    def is_barren(self) -> bool:
        """As many tasks and rounds as the run has rounds came to nothing, one after the other: it ends here."""
        return self.progress.barren >= self.config.run.rounds

    @property
    def selections_left(self) -> int:
        """Of a synchronous run, which is over also when it has had as many rounds."""
        goes_on = (self.rounds_left > 0 or self.current is not None) and not self.is_barren
        return max(self.config.run.rounds - self.selections, 0) if goes_on else 0

    @property
    def empty_round_s(self) -> float:
        """How long a synchronous round lasts that nobody takes: channels are others then."""
        return min(self.terms.max_time_s, self.timeout_s)

    def ready(self) -> bool:
        """Whether the run can start."""
        return not self.started and len(self.members) >= (self.live.start_with or self.config.fleet.devices)

    def number_of(self, name: str) -> int | None:
        member = self.members.get(name)
        return member.device if member is not None else None

    def terms_of(self, device: int) -> Terms:
        """Those of a device that has a number."""
        return self.members[self.names[device]].terms(self.terms)

    def samples_of(self, sent: events.Dispatched) -> int:
        """What a task is trained on."""
        return self.members[self.names[sent.device]].joined.samples if sent.samples is None else sent.samples

    def task_of(self, device: int) -> OpenTask | None:
        token = self._task_of.get(device)
        return self.open[token] if token is not None else None

    def is_quarantined(self, name: str) -> bool:
        member = self.members.get(name)
        return member is not None and member.quarantined_until_s is not None

    def held_back_until_s(self, device: int) -> float:
        """A device whose tasks came to nothing is not asked before; unless nobody else is there, who would gain by that."""
        needed = not self.open and not self._anyone_idle_but(device)
        return self.back_off.until_s(device, needed=needed)

    def excess_of(self, task: OpenTask, *, late: bool) -> str | None:
        """Why an upload would give its device too large a share of the model, or None. One that was chosen never does, and a
        synchronous round has one upload of a device at most.
        """
        if self.sync or (task.chosen and not late):
            return None
        device, known = task.sent.device, self.twin.devices
        others = sum(
            one.status == "in-flight" or (one.status == "idle" and number in self.influence.uploads)
            for number, one in enumerate(known)
            if number != device
        )
        return self.influence.excess(device, taking_part=1 + others, devices=len(known))

    def _anyone_idle_but(self, device: int) -> bool:
        return any(one.status == "idle" for number, one in enumerate(self.twin.devices) if number != device)

    def overdue(self, at_s: float) -> list[OpenTask]:
        return [task for task in self.open.values() if at_s > task.sent.deadline_s]

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
            case events.Opened():
                self.progress.asked(event.round)
                self.coordinator.open_round()
                self.current = Round(event, self.coordinator.total_queue())
            case events.Filled():
                self._open_round.full = True
            case events.Closed():
                self._closed(event)
            case events.Asked():
                self._asked(event)
            case events.Declined():
                self._declined(event)
            case events.Passed():
                self.progress.passed(event.round)
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
            self._knobs,
            self.tie_ranks,
            policy_name=self.config.policy.name,
            learn_on_selection=False,
            predict=self._predict,
            gain_known=self.config.twin.gain,
        )
        self._places = ranks(seed, Purpose.START, len(samples)).tolist()
        self._first = [] if self.sync else sorted(range(len(samples)), key=self._places.__getitem__)
        for member in self.members.values():
            if member.quarantined_until_s is not None and member.device is not None:
                self._coordinator.set_status(member.device, "quarantined")

    def _predict(self, device: int, gain: float, cpu_hz: float, samples: float) -> Prediction:
        rule = optimal_plan if self._keeps_limits else full_power_plan
        return predict(rule, self.terms_of(device), gain, cpu_hz, samples)

    def _asked(self, event: events.Asked) -> None:
        self.progress.asked(event.round)
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
            self.back_off.failed(event.device, event.at_s)
            if not self.is_quarantined(self.names[event.device]):
                self.coordinator.set_status(event.device, "offline")
        elif self.coordinator.round > 0:  # the first dispatches teach nothing, as in a simulation
            self.coordinator.decline(event.device, event.gain, event.cpu_hz, event.at_s)
        if not event.offline:
            self.progress.answered()
        self._end_the_first_dispatches()

    def _dispatched(self, event: events.Dispatched) -> None:
        counted = event.round > 0
        time_s, energy_j = event.compute_s + event.upload_s, event.compute_j + event.upload_j
        offer = Offer(event.gain, event.cpu_hz, event.compute_s, event.cost, time_s, energy_j, self.samples_of(event))
        self.coordinator.accept(event.device, offer, event.at_s, counted=counted)
        self.open[event.token] = OpenTask(event, self.changes, self._anyone_idle_but(event.device))
        self._task_of[event.device] = event.token
        self._round_is_open = False
        if self.sync:
            self.selections += 1
            self._open_round.selections.append(Selection(event))
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
        task = self.given_up[event.token] if event.late else self.open[event.token]
        self.progress.mixed_in(of_a_round_given_up=event.late and task.sent.round > 0)
        self.back_off.delivered(event.device)
        self.influence.mixed_in(event.device, chosen=task.chosen and not event.late, devices=len(self.names))
        if self.sync:
            del self.open[event.token], self._task_of[event.device]
            self._open_round.end(event)
        elif event.late:
            del self.given_up[event.token]
            self.coordinator.report_late()
        else:
            del self.open[event.token], self._task_of[event.device]
            self.coordinator.report(
                event.device,
                event.cost,
                event.compute_s,
                event.at_s,
                time_s=event.compute_s + event.upload_s,
                energy_j=event.compute_j + event.upload_j,
                train_loss=event.train_loss,
            )
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
        if not event.dropped:
            self._came_to_nothing(event, task.sent)
        del self._task_of[event.device]
        sent = task.sent
        time_s, energy_j = event.at_s - sent.at_s, sent.compute_j + sent.upload_j
        if self.sync:  # charged when the round is closed
            self._open_round.end(event)
            self.coordinator.set_status(event.device, event.status)
        else:
            self.coordinator.give_up(event.device, event.cost, event.status, time_s=time_s, energy_j=energy_j)
        if event.status == "quarantined":
            self._close(event.token, "refused")
        else:
            self._remember_the_newest(event, task)

    def _came_to_nothing(self, event: events.GivenUp, sent: events.Dispatched) -> None:
        self.back_off.failed(event.device, event.at_s)
        if self.sync:
            self.selections -= 1
            self.progress.barren += 1
        elif sent.round > 0:
            self.progress.came_to_nothing()

    def _remember_the_newest(self, event: events.GivenUp, task: OpenTask) -> None:
        """Of a device's tasks that were given up, only the newest can still be redeemed: nobody hoards tokens."""
        for token in [old for old, one in self.given_up.items() if one.sent.device == event.device]:
            del self.given_up[token]
            self._close(token, SUPERSEDED)
        self.given_up[event.token] = task
        if len(self.given_up) > REMEMBERED_TOKENS:
            self.given_up.popitem(last=False)

    @property
    def _open_round(self) -> Round:
        if self.current is None:
            raise ValueError("no synchronous round is open")
        return self.current

    def _closed(self, event: events.Closed) -> None:
        """Everybody in the round is charged, in the order of asking; who uploaded is idle, unless something befell it since."""
        coordinator, took_s = self.coordinator, event.took_s
        for selection in self._open_round.selections:
            device, charge = selection.sent.device, selection.charge(self.terms_of(selection.sent.device), took_s)
            status = self.twin.devices[device].status
            if isinstance(selection.ended, events.Applied):
                took = selection.ended
                coordinator.set_status(device, "in-flight")
                coordinator.report(
                    device,
                    charge.cost,
                    took.compute_s,
                    event.at_s,
                    time_s=took_s,
                    energy_j=charge.energy_j,
                    train_loss=took.train_loss,
                )
                if status != "in-flight":
                    coordinator.set_status(device, status)
            else:
                coordinator.give_up(device, charge.cost, status, time_s=took_s, energy_j=charge.energy_j)
                self.energy_j += charge.energy_j
        ends = [one.ended for one in self._open_round.selections]
        if ends and all(isinstance(one, events.GivenUp) and not one.dropped for one in ends):
            self.progress.given_up += 1
        elif not ends:
            self.progress.passed(event.round)
        self.current = None
        self._rounds_mixed = event.version
        self.changes += event.changed

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
