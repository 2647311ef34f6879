"""How a live run changes: by events only. A replay gives the events of a ledger to ``apply``, and the same state comes back."""

from typing import Any

from fedtwin.config import Config
from fedtwin.draws import Purpose, ranks
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.facts import Facts, Member
from fedtwin.live.run.limits import Need
from fedtwin.live.run.round import Round
from fedtwin.live.run.settable import SETTABLE, config_for_devices, config_with
from fedtwin.live.run.snapshot import put_back, snapshot_of
from fedtwin.live.run.tasks import OpenTask, remember
from fedtwin.policies import Policy
from fedtwin.twin import new_twin
from fedtwin.twin.update import Offer

__all__ = ["Member", "OpenTask", "State"]


class State(Facts):
    """What is, and how it changes: only by ``apply``."""

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain JSON. Two states are equal where their snapshots are."""
        return snapshot_of(self)

    @classmethod
    def restore(cls, config: Config, snapshot: dict[str, Any], policy: Policy | None = None) -> "State":
        """The state that a snapshot was taken of, or one sentence about why it cannot be had back."""
        state = cls(config, policy)
        put_back(state, snapshot, decides=policy is None)
        return state

    def apply(self, event: Event) -> None:
        """The only place where the state changes."""
        self.last_at_s = max(self.last_at_s, event.at_s)
        match event:
            case events.Began():
                self.began = event
            case events.Joined():
                self._joined(event)
            case events.Limits():
                self.limits = event
                self.asking.waiting = False
            case events.Resized():
                member = self.members[event.name]
                member.joined = member.joined.model_copy(update={"samples": event.samples})
                if member.device is not None:
                    self.coordinator.resize(member.device, event.samples, event.at_s)
            case events.Normalised():
                self.normalisation = event.normalisation
            case events.Started():
                self._started(event)
            case events.Told():
                for heard in event.facts:
                    self.coordinator.tell(*heard, event.at_s)
            case events.Opened():
                self._opened(event)
            case events.Filled():
                self.open_round.full = True
            case events.Closed():
                self._closed(event)
            case events.Asked():
                self._asked(event)
            case events.Declined():
                self._declined(event)
            case events.Passed():
                self.progress.passed(event.round)
                self.asking.passed(event.round, self.free)
            case events.Offered():
                self.asking.waiting = False
            case events.Dispatched():
                self._dispatched(event)
            case events.Applied():
                self._applied(event)
            case events.GivenUp():
                self._given_up(event)
            case events.Refused():
                remember(self.refusals, (event.name, event.reason.partition(":")[0]), event.count)
            case events.StatusChanged():
                self.coordinator.set_status(event.device, event.status)
                self.asking.waiting = self.asking.waiting and event.status != "idle"
            case events.Quarantined():
                self._quarantined(event)
            case events.Released():
                self._released(event)
            case events.Steered():
                self._steered(event)
            case events.Changed():
                self._changed(event)
            case events.Stopped():
                self.finished = event.finished
            case events.Resumed():
                self.asking.questions.clear()  # nobody hears the answers any more
            case events.Measured():
                self.measured_version = event.version
                metric = event.test_accuracy if event.test_metric is None else event.test_metric
                self.judged.evaluated(self.config.learning, metric)
            case events.Repaired():
                pass

    def _joined(self, event: events.Joined) -> None:
        member = self.members[event.name] = Member(event)
        if self.started:
            member.device = self.coordinator.join(event.samples, event.at_s)
            self.names.append(event.name)
            self.asking.waiting = False

    def _started(self, event: events.Started) -> None:
        self.names, self.started_s = list(event.names), event.at_s
        samples = []
        for device, name in enumerate(self.names):
            self.members[name].device = device
            samples.append(self.members[name].joined.samples)
        seed, count = self.config.run.seed, len(samples)
        twin = new_twin(samples, self.config.objective.min_mean_samples)
        self.set_coordinator(self.new_coordinator(twin, ranks(seed, Purpose.TIES, count).tolist()))
        places = self.asking.places = ranks(seed, Purpose.START, count).tolist()
        self.asking.first = [] if self.sync else sorted(range(count), key=places.__getitem__)
        for member in self.members.values():
            if member.quarantined_until_s is not None and member.device is not None:
                self.coordinator.set_status(member.device, "quarantined")

    def _opened(self, event: events.Opened) -> None:
        self.coordinator.open_round()
        if self.sync:
            self.current = Round(event, self.coordinator.total_queue())
        else:
            self.asking.opened(event.round)

    def _asked(self, event: events.Asked) -> None:
        if self.sync:
            self.open_round.asked.append(event.device)
            self.asking.questions[event.device] = event
            return
        if event.round > self.coordinator.round:  # in ledgers from before, whoever was asked first opened the round
            self._opened(events.Opened(at_s=event.at_s, round=event.round))
        self.asking.asked(event)

    def _declined(self, event: events.Declined) -> None:
        asked = self.asking.answered(event.device)
        if event.offline:
            self.back_off.failed(event.device, event.at_s)
            if not self.is_quarantined(self.names[event.device]):
                self.coordinator.set_status(event.device, "offline")
        elif asked is not None and asked.round > 0:  # the first dispatches teach nothing, as in a simulation
            self.progress.answered(asked.round)
            self.coordinator.decline(event.device, event.gain, event.cpu_hz, event.at_s, round_=asked.round)

    def _dispatched(self, event: events.Dispatched) -> None:
        self.asking.answered(event.device)
        time_s, energy_j = event.compute_s + event.upload_s, event.compute_j + event.upload_j
        offer = Offer(event.gain, event.cpu_hz, event.compute_s, event.cost, time_s, energy_j, self.samples_of(event))
        self.coordinator.accept(event.device, offer, event.at_s, counted=event.round > 0, round_=event.round)
        asked = self.asking.rounds.get(event.round, [])
        self.tasks.sent(event, self.changes, chosen=any(device not in asked for device in self.free))
        if self.sync:
            self.selections += 1
            self.open_round.take(event)
        else:
            self.asking.taken(event.round)
            self.progress.taken(event.round)
            if len(self.open) >= self.channels:  # nobody more is asked at the start
                self.asking.first = []

    def _applied(self, event: events.Applied) -> None:
        task = self.given_up[event.token] if event.late else self.open[event.token]
        self.tasks.applied(event)
        self.progress.mixed_in(of_a_round_given_up=event.late and task.sent.round > 0)
        self.back_off.delivered(event.device)
        self.influence.mixed_in(event.device, chosen=task.chosen and not event.late, devices=len(self.names))
        if self.sync:
            self.open_round.end(event)
        elif event.late:
            self.coordinator.report_late()
        else:
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
        self._took(event)
        self.asking.waiting = False
        self.changes += event.changed
        self.applied += 1
        self.energy_j += event.compute_j + event.upload_j

    def _took(self, event: events.Applied) -> None:
        """The first upload of a board that had measured nothing shows what it needs."""
        member = self.members[self.names[event.device]]
        if member.is_board and member.need is None:
            member.took = Need(event.compute_s + event.upload_s, event.compute_j + event.upload_j)

    def _given_up(self, event: events.GivenUp) -> None:
        sent = self.tasks.given_up_by(event).sent
        if not event.dropped:
            self._came_to_nothing(event, sent)
        self.asking.waiting = False
        time_s, energy_j = event.at_s - sent.at_s, sent.compute_j + sent.upload_j
        if self.sync:  # charged when the round is closed
            self.open_round.end(event)
            self.coordinator.set_status(event.device, event.status)
        else:
            self._charged_for_nothing(event.device, time_s, energy_j)
            self.coordinator.give_up(event.device, event.cost, event.status, time_s=time_s, energy_j=energy_j)

    def _charged_for_nothing(self, device: int, time_s: float, energy_j: float) -> None:
        """No less than an update at both its limits, whatever weights and limits will hold."""
        if self.twin.devices[device].counted:
            self.nothings.setdefault(device, []).append((time_s, energy_j))

    def _came_to_nothing(self, event: events.GivenUp, sent: events.Dispatched) -> None:
        self.back_off.failed(event.device, event.at_s)
        if self.sync:
            self.selections -= 1
            self.progress.barren += 1
        elif sent.round > 0:
            self.progress.came_to_nothing()

    @property
    def open_round(self) -> Round:
        if self.current is None:
            raise ValueError("no synchronous round is open")
        return self.current

    def _closed(self, event: events.Closed) -> None:
        """Everybody in the round is charged, in the order of asking; who uploaded is idle, unless something befell it since."""
        coordinator, took_s = self.coordinator, event.took_s
        for selection in self.open_round.selections:
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
                if selection.ended is None or not selection.ended.dropped:
                    self._charged_for_nothing(device, took_s, charge.energy_j)
                coordinator.give_up(device, charge.cost, status, time_s=took_s, energy_j=charge.energy_j)
                self.energy_j += charge.energy_j
        ends = [one.ended for one in self.open_round.selections]
        if ends and all(isinstance(one, events.GivenUp) and not one.dropped for one in ends):
            self.progress.given_up += 1
        elif not ends:
            self.progress.passed(event.round)
        self.progress.taken(event.round)
        self.current = None
        self.rounds_mixed = event.version
        self.changes += event.changed

    def _steered(self, event: events.Steered) -> None:
        match event.command:
            case "pause":
                self.paused = True
            case "resume":
                self.paused = self.asking.waiting = False
            case "drain" if event.name is not None and event.name not in self.drained:
                self.drained.append(event.name)
            case "finish":
                self.ending = event.reason or "it was told to"
            case _:
                pass

    def _changed(self, event: events.Changed) -> None:
        self.changed[event.setting] = event.value
        self.use(config_with(self.given, self.changed), config_for_devices(self.given, self.changed))
        self.asking.waiting = False
        if self.started:
            SETTABLE[event.setting](self)

    def _quarantined(self, event: events.Quarantined) -> None:
        member = self.members.get(event.name)
        if member is None:
            return
        self.quarantines += 1
        member.quarantined_until_s, member.quarantine_reason = event.until_s, event.reason
        if member.device is not None and member.device not in self.tasks.token_of:
            self.coordinator.set_status(member.device, "quarantined")

    def _released(self, event: events.Released) -> None:
        """It is asked when it is heard. Where a person says so, what came to nothing before is forgotten, too."""
        member = self.members.get(event.name)
        if member is None:  # cut before it had joined
            return
        if event.by is not None and event.name in self.drained:
            self.drained.remove(event.name)
            self.asking.waiting = False
        was_quarantined = member.quarantined_until_s is not None
        member.quarantined_until_s = member.quarantine_reason = None
        if member.device is None:
            return
        if event.by is not None:
            self.back_off.delivered(member.device)
        if was_quarantined and member.device not in self.tasks.token_of:
            self.coordinator.set_status(member.device, "offline")
