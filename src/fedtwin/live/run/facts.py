"""What a live run is at a moment: who is there, which tasks are open, who is being asked, the coordinator."""

from collections import OrderedDict
from dataclasses import dataclass

from fedtwin.config import Config, LiveConfig
from fedtwin.coordinator import Coordinator
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.formulas.terms import Quantities, Terms, terms_of
from fedtwin.formulas.timeout import timeout_of
from fedtwin.learning.rates import with_the_rounds_of_boards
from fedtwin.live.run import events
from fedtwin.live.run.asking import Asking
from fedtwin.live.run.back_off import BackOff
from fedtwin.live.run.influence import Influence
from fedtwin.live.run.judged import Judged
from fedtwin.live.run.limits import Need, limits_of_board, set_limits
from fedtwin.live.run.progress import Progress
from fedtwin.live.run.round import Round
from fedtwin.live.run.tasks import OpenTask, Tasks
from fedtwin.policies import OraclePolicy, Policy, Prediction, knobs_of, plain_knobs_of, policy_of
from fedtwin.prediction import predict
from fedtwin.twin import Twin


@dataclass
class Member:
    """A device by its name; its number once the run has started."""

    joined: events.Joined
    device: int | None = None
    quarantined_until_s: float | None = None
    quarantine_reason: str | None = None
    took: Need | None = None

    def terms(self, configured: Terms) -> Terms:
        """Those of the run, and what the device has measured, or has of its own, in their place."""
        if not self.joined.measured and not self.joined.own:
            return configured
        known = {**(self.joined.measured or {}), **self.joined.own}
        return configured._replace(**{name: known[name] for name in Quantities._fields if name in known})

    @property
    def is_board(self) -> bool:
        """Not an emulated device: it measures itself."""
        return self.joined.measured is not None

    @property
    def need(self) -> Need | None:
        """What an update of a board takes: as it measured before it joined, else as its first upload showed."""
        measured = self.joined.measured or {}
        return Need(measured["time_s"], measured["energy_j"]) if {"time_s", "energy_j"} <= measured.keys() else self.took


class Facts:
    """Who only replays a ledger brings a policy that is never asked."""

    def __init__(self, config: Config, policy: Policy | OraclePolicy | None = None) -> None:
        self._knobs_of = knobs_of if policy is None else plain_knobs_of
        policy = policy or policy_of(config)
        if not isinstance(policy, Policy):
            raise FedtwinError(f"policy.name = {config.policy.name!r} knows the true costs: it is for simulations only.")
        self.given = config
        self.changed: dict[str, bool | int | float] = {}
        self._coordinator: Coordinator | None = None
        self.use(config, with_the_rounds_of_boards(config))
        self.sync, self.timeout_s = config.run.mode == "sync", timeout_of(config)
        power = policy.power if config.policy.power == "scheme" else config.policy.power
        self.policy, self.keeps_limits = policy, power == "optimal"
        self.members: dict[str, Member] = {}
        self.names: list[str] = []
        self.tasks, self.asking = Tasks(), Asking()
        self.refusals: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.changes = 0
        self.energy_j = 0.0
        self.normalisation: dict[str, list[float]] | None = None
        self.applied = 0
        self.limits: events.Limits | None = None
        self.began: events.Began | None = None
        self.finished = False
        self.started_s: float | None = None
        self.last_at_s = 0.0
        self.current: Round | None = None
        self.selections = self.rounds_mixed = 0
        self.back_off = BackOff(self.live.back_off_s, self.live.time_scale)
        self.progress, self.influence = Progress(), Influence()
        self.quarantines = 0
        self.measured_version = -1
        self.paused, self.drained = False, list[str]()
        self.ending: str | None = None
        self.judged = Judged()
        self.nothings: dict[int, list[tuple[float, float]]] = {}

    def use(self, config: Config, for_devices: Config) -> None:
        """The settings that hold from now on, and those that devices join with; ``given`` are those of the beginning."""
        self.config, self.for_devices = config, for_devices
        self.live = config.live or LiveConfig()
        self.terms = terms_of(config)
        self._knobs = self._knobs_of(config)
        if self._coordinator is not None:
            self._coordinator.use(self._knobs)

    @property
    def started(self) -> bool:
        return self._coordinator is not None

    @property
    def coordinator(self) -> Coordinator:
        if self._coordinator is None:
            raise ValueError("the run has not started")
        return self._coordinator

    def set_coordinator(self, coordinator: Coordinator) -> None:
        """The run has started."""
        self._coordinator = coordinator

    @property
    def twin(self) -> Twin:
        return self.coordinator.twin

    @property
    def version(self) -> int:
        """Uploads mixed in; of a synchronous run rounds, whose model changes when they are closed."""
        if self.sync:
            return self.rounds_mixed
        return self._coordinator.twin.model_version if self._coordinator is not None else 0

    @property
    def round(self) -> int:
        return self._coordinator.round if self._coordinator is not None else 0

    @property
    def queue_round(self) -> int:
        """The t of Q_n(t): the round that was opened last, or the next one where somebody has taken it, or nobody."""
        is_open = self.current is not None and not self.current.selections if self.sync else self.round in self.asking.rounds
        return self.round if is_open else self.round + 1

    @property
    def open(self) -> dict[str, OpenTask]:
        """Tasks in flight, by their tokens."""
        return self.tasks.open

    @property
    def given_up(self) -> OrderedDict[str, OpenTask]:
        """Tasks whose upload would be late."""
        return self.tasks.given_up

    @property
    def closed(self) -> OrderedDict[str, str]:
        """What became of the tasks that are over."""
        return self.tasks.closed

    @property
    def channels(self) -> int:
        return min(self.config.fleet.channels, len(self.names))

    @property
    def waits_for_nothing(self) -> bool:
        """Everybody declined, and no answer or upload is on its way that could change that: only time can."""
        return self.asking.waiting and not self.open and not self.asking.questions and not self.asking.rounds

    @property
    def free(self) -> list[int]:
        """Who could be asked: idle, not being asked, and not drained."""
        devices, busy = self.twin.devices, {*self.asking.questions, *self.not_to_ask}
        return [device for device, known in enumerate(devices) if known.status == "idle" and device not in busy]

    @property
    def not_to_ask(self) -> set[int]:
        """Who is drained."""
        return {device for device in map(self.number_of, self.drained) if device is not None}

    @property
    def halted(self) -> str | None:
        """Why nobody is asked and no task handed out."""
        return "the run is paused" if self.paused and self.ending is None else self.ending and "the run ends"

    @property
    def done(self) -> bool:
        """All rounds have been played, or it was told to end, and every task has ended."""
        if self.ending is not None:
            untaken = self.current is None or not self.current.selections
            return untaken and not self.open and not self.asking.questions
        if self.sync:
            return self.started and self.current is None and self.selections_left == 0
        return self.started and self.rounds_left == 0 and not self.asking.rounds and not self.open

    @property
    def rounds_left(self) -> int:
        """Rounds that are still to be opened; those that came to nothing do not count, unless as many did so in a row."""
        return 0 if self.is_barren or self.ending is not None else max(self.config.run.rounds - self.rounds_counted, 0)

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
        goes_on = (self.rounds_left > 0 or self.current is not None) and not self.is_barren and self.ending is None
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
        terms = self.members[self.names[device]].terms(self.terms)
        return terms._replace(**limits) if (limits := self.limits_of(device)) else terms

    def limits_of(self, device: int) -> dict[str, float]:
        """Those that a person has set since the run began, and those of a board that are taken from the fleet; out of its reach
        while nobody knows what it needs.
        """
        member, set_since = self.members[self.names[device]], dict[str, float]()
        if self.changed:
            set_since = set_limits(self.changed, self.terms, member.joined.own)
        if not self.live.limits_from_fleet or not member.is_board:
            return set_since
        return set_since | limits_of_board(self.live, self.terms, None if member.need is None else self.limits)

    def asked_with(self, device: int) -> dict[str, float]:
        """What holds for an update, where it is not as in the settings that the device joined with."""
        weight = {"energy_weight": self.terms.energy_weight} if "objective.energy_weight" in self.changed else {}
        return self.limits_of(device) | weight

    def samples_of(self, sent: events.Dispatched) -> int:
        """What a task is trained on."""
        return self.members[self.names[sent.device]].joined.samples if sent.samples is None else sent.samples

    def task_of(self, device: int) -> OpenTask | None:
        return self.tasks.of(device)

    def is_quarantined(self, name: str) -> bool:
        member = self.members.get(name)
        return member is not None and member.quarantined_until_s is not None

    @property
    def backed_off(self) -> list[str]:
        """Whose tasks and questions came to nothing more than once in a row, and were followed by no upload yet."""
        return [self.names[device] for device in sorted(self.back_off.failures) if self.back_off.holds(device)]

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
        return self.influence.excess(device, taking_part=1 + others, devices=len(known), shares=self.live.influence_shares)

    def _anyone_idle_but(self, device: int) -> bool:
        others = (number for number, one in enumerate(self.twin.devices) if one.status == "idle" and number != device)
        return any(number not in self.not_to_ask for number in others)

    def overdue(self, at_s: float) -> list[OpenTask]:
        return [task for task in self.open.values() if at_s > task.sent.deadline_s]

    def _predict(self, device: int, gain: float, cpu_hz: float, samples: float) -> Prediction:
        rule = optimal_plan if self.keeps_limits else full_power_plan
        return predict(rule, self.terms_of(device), gain, cpu_hz, samples)

    def new_coordinator(self, twin: Twin, ranks: list[int]) -> Coordinator:
        """One that has decided nothing yet."""
        return Coordinator(
            twin,
            self.policy,
            self._knobs,
            ranks,
            policy_name=self.config.policy.name,
            learn_on_selection=False,
            predict=self._predict,
            gain_known=self.config.twin.gain,
        )
