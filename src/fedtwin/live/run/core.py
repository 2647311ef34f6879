"""The edge server without clock, network or disk: who is asked, what an answer leads to, what may happen next.

Whoever drives it asks for the next event (``next_ask``, ``answered``, …), writes it to the ledger, and gives it to ``apply``.
Decisions are the coordinator's, as in the simulator; costs are always learned on arrival, because an offer is only what a
device says of itself.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fedtwin.config import Config, LiveConfig
from fedtwin.coordinator import Coordinator, Decision, Now
from fedtwin.files import natural
from fedtwin.formulas.compute import most_stray
from fedtwin.formulas.cost import cost, within
from fedtwin.formulas.terms import Terms
from fedtwin.live.run import events
from fedtwin.live.run.back_off import BackOff
from fedtwin.live.run.gathering import gathered
from fedtwin.live.run.influence import Influence
from fedtwin.live.run.judged import Judged
from fedtwin.live.run.limits import is_due, limits_for
from fedtwin.live.run.progress import Progress
from fedtwin.live.run.round import LEAST_COST_OF_NOTHING, Round
from fedtwin.live.run.state import Member, OpenTask, State
from fedtwin.live.wire.protocol import Accept, Decline, Hello
from fedtwin.twin import Fact, Twin

__all__ = ["Core", "Member", "OpenTask"]
TOO_LATE = "late: run.sync_timeout_s has passed"


class Core:
    """What may happen next, as events that have not happened yet. Nothing changes by asking.

    Whatever is to be read of the state is read here too: ``core.open`` is ``core.state.open``.
    """

    if TYPE_CHECKING:
        apply: Callable[[events.Event], None]
        config: Config
        given: Config
        for_devices: Config
        changed: dict[str, bool | int | float]
        live: LiveConfig
        terms: Terms
        sync: bool
        timeout_s: float
        keeps_limits: bool
        members: dict[str, Member]
        names: list[str]
        open: dict[str, OpenTask]
        given_up: OrderedDict[str, OpenTask]
        closed: OrderedDict[str, str]
        refusals: OrderedDict[tuple[str, str], int]
        changes: int
        energy_j: float
        applied: int
        limits: events.Limits | None
        began: events.Began | None
        finished: bool
        last_at_s: float
        normalisation: dict[str, list[float]] | None
        current: Round | None
        selections: int
        started: bool
        coordinator: Coordinator
        twin: Twin
        version: int
        round: int
        queue_round: int
        channels: int
        done: bool
        selections_left: int
        rounds_left: int
        rounds_counted: int
        is_barren: bool
        progress: Progress
        influence: Influence
        back_off: BackOff
        quarantines: int
        measured_version: int
        paused: bool
        drained: list[str]
        ending: str | None
        halted: str | None
        judged: Judged
        not_to_ask: set[int]
        asked_with: Callable[[int], dict[str, float]]
        backed_off: list[str]
        empty_round_s: float
        waits_for_nothing: bool
        ready: Callable[[], bool]
        number_of: Callable[[str], int | None]
        terms_of: Callable[[int], Terms]
        limits_of: Callable[[int], dict[str, float]]
        samples_of: Callable[[events.Dispatched], int]
        task_of: Callable[[int], OpenTask | None]
        is_quarantined: Callable[[str], bool]
        overdue: Callable[[float], list[OpenTask]]
        held_back_until_s: Callable[[int], float]

        def excess_of(self, task: OpenTask, *, late: bool) -> str | None: ...

    else:

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["state"], name)

    def __init__(self, config: Config, state: State | None = None) -> None:
        self.state = state or State(config)

    def join(self, name: str, hello: Hello, at_s: float) -> events.Joined:
        if hello.samples is None:
            raise ValueError("a device that joins says how many samples it trains on")
        return events.Joined(
            at_s=at_s,
            name=name,
            samples=hello.samples,
            hardware=hello.hardware,
            measures=hello.measures,
            own=hello.own.given if hello.own is not None else {},
            moments=hello.moments,
            measured=hello.measured.given if hello.measured is not None else None,
        )

    def resize(self, name: str, samples: int, at_s: float) -> events.Resized:
        return events.Resized(at_s=at_s, name=name, samples=samples)

    def normalise(self, at_s: float) -> events.Normalised | None:
        """What all who brought samples of their own normalise by, once for the run; None where that is known, or nobody did."""
        learning = self.config.learning
        if self.normalisation is not None or (learning is not None and learning.normalisation):
            return None
        found = gathered({name: member.joined.moments for name, member in self.members.items()})
        return None if found is None else events.Normalised(at_s=at_s, normalisation=found[0], names=found[1])

    def settle_limits(self, at_s: float) -> events.Limits | None:
        """T_max and E_max from what the boards need, where the user gave none; None where nothing is to be settled."""
        if not self.live.limits_from_fleet or not (self.started or self.ready()):
            return None
        needs = [member.need for member in self.members.values() if member.need is not None]
        if not is_due(len(needs), self.limits.devices if self.limits is not None else None):
            return None
        time_s, energy_j = limits_for(needs, self.live.time_scale)
        return events.Limits(at_s=at_s, max_time_s=time_s, max_energy_j=energy_j, devices=len(needs))

    def start(self, at_s: float) -> events.Started:
        return events.Started(at_s=at_s, names=sorted(self.members, key=natural))

    def tell(self, heard: Mapping[int, events.Heard], at_s: float) -> events.Told | None:
        """What of it is news; None where nothing is."""
        facts = [fact for fact in map(self._news, heard.values()) if fact.gain is not None or fact.cpu_hz is not None]
        return events.Told(at_s=at_s, facts=facts) if facts else None

    def _news(self, heard: events.Heard) -> events.Heard:
        known = self.twin.devices[heard.device]
        return events.Heard(heard.device, _if_new(heard.gain, known.gain), _if_new(heard.cpu_hz, known.cpu_hz))

    def next_ask(self, at_s: float) -> events.Asked | events.Passed | events.Opened | events.Filled | None:
        """Who is to be asked now, for a channel that nobody is asked for yet; None where nobody is needed, or nobody is there.

        A round is opened first. It has passed when nobody is left to ask; a synchronous one is filled when nobody more is.
        """
        if not self.started or (self.halted and not self.sync):
            return None
        return self._next_of_a_round(at_s) if self.sync else self._next_of_a_channel(at_s)

    def _next_of_a_channel(self, at_s: float) -> events.Asked | events.Passed | events.Opened | None:
        state, asking = self.state, self.state.asking
        round_ = asking.round_to_go_on
        if round_ is not None:
            decision = self._best(round_, asking.rounds[round_], at_s)
            if decision is None:
                return events.Passed(at_s=at_s, round=round_)
            return _asked(decision, state.coordinator.total_queue(), at_s)
        if asking.waiting or len(state.open) + asking.held >= state.channels:
            return None
        if asking.first:
            kept_out = state.not_to_ask
            idle = (one for one in asking.first if state.twin.devices[one].status == "idle" and one not in kept_out)
            device = next(idle, None)
            if device is None:
                return events.Passed(at_s=at_s, round=0)
            score = float(asking.places[device])
            return events.Asked(at_s=at_s, round=0, device=device, score=score, queue=0.0, total_queue=0.0)
        if state.rounds_left == 0 or not state.free:
            return None
        return events.Opened(at_s=at_s, round=state.round + 1)

    def _next_of_a_round(self, at_s: float) -> events.Asked | events.Opened | events.Filled | None:
        """Of M devices at most; who answers first changes nothing: the order within a round does not depend on answers."""
        state, current, questions = self.state, self.state.current, self.state.asking.questions
        if current is None:
            ready = not state.halted and state.selections_left > 0 and state.free
            return events.Opened(at_s=at_s, round=state.round + 1) if ready else None
        if current.full or (state.halted and not current.selections):
            return None
        wanted = not state.halted and min(state.channels - len(current.selections), state.selections_left) > len(questions)
        decision = self._best(state.round, current.asked, at_s) if wanted else None
        if decision is not None:
            return _asked(decision, current.total_queue, at_s)
        return None if questions else events.Filled(at_s=at_s, round=state.round)

    def _best(self, round_: int, asked: list[int], at_s: float) -> Decision | None:
        """Of who was not asked in this round, nor is being asked in another."""
        left_out = {*asked, *self.state.asking.questions, *self.state.not_to_ask}
        return self.state.coordinator.best(Now(at_s), round_, left_out)

    def round_is_over(self, at_s: float) -> bool:
        """Whether the synchronous round can be closed."""
        return self.current is not None and self.current.is_over(at_s, self.empty_round_s)

    def close_round(self, at_s: float, version: int, *, changed: bool, state: events.KeptState | None) -> events.Closed:
        took_s = self.state.open_round.took_s(self.empty_round_s, self.timeout_s)
        return events.Closed(at_s=at_s, round=self.round, version=version, changed=changed, took_s=took_s, state=state)

    def offer_again(self, at_s: float) -> events.Offered:
        """A channel that nobody took is offered anew."""
        return events.Offered(at_s=at_s)

    def answered(
        self, asked: events.Asked, answer: Accept | Decline, token: str, at_s: float
    ) -> events.Dispatched | events.Declined:
        """A task, or why there is none. An offer over the limits is a decline: whoever keeps them is asked next."""
        device = asked.device
        if self.is_quarantined(self.names[device]):
            return self.left_out(asked, at_s)
        if self.halted or device in self.not_to_ask:
            return events.Declined(at_s=at_s, device=device, reason=f"no task: {self.halted or 'the device is drained'}")
        if isinstance(answer, Decline):
            return events.Declined(at_s=at_s, device=device, **answer.model_dump(exclude={"kind", "protocol"}))
        joined = self.members[self.names[device]].joined
        if reason := self._impossible(answer, self.terms_of(device), joined):
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
            samples=answer.samples or joined.samples,
            cost=cost(self.terms_of(device), time_s, energy_j),
            deadline_s=self._deadline_s(at_s, time_s),
        )

    def _deadline_s(self, at_s: float, time_s: float) -> float:
        """The timeout of a synchronous round, if that is earlier: but an upload that says it is in time may be on its way."""
        live = self.live
        usual_s = at_s + live.deadline_factor * time_s + live.deadline_margin_s / live.time_scale
        return min(usual_s, at_s + self.timeout_s + live.clock_tolerance_s / live.time_scale)

    def is_timed_out(self, task: OpenTask) -> bool:
        """Whether its deadline is that of its round: it is late, and nothing else is wrong with it."""
        return task.sent.deadline_s >= task.sent.at_s + self.timeout_s

    def unanswered(self, asked: events.Asked, at_s: float, reason: str) -> events.Declined:
        return events.Declined(at_s=at_s, device=asked.device, reason=reason, offline=True)

    def left_out(self, asked: events.Asked, at_s: float) -> events.Declined:
        """It was put in quarantine while it was being asked."""
        return events.Declined(at_s=at_s, device=asked.device, reason="quarantined")

    def drop(self, task: OpenTask, at_s: float) -> events.GivenUp:
        """Its synchronous round ends without it."""
        return self.give_up(task, at_s, TOO_LATE, "idle").model_copy(update={"dropped": True, "status": "idle"})

    def give_up(self, task: OpenTask, at_s: float, reason: str, status: events.StatusAfter) -> events.GivenUp:
        """Charged by the server's clock and the predicted energy, and no less than an update at both its limits."""
        sent = task.sent
        if status == "idle" and self.back_off.holds_after_another(sent.device):
            status = "offline"  # it comes back when it is heard, and its time is up
        charged = cost(self.terms_of(sent.device), at_s - sent.at_s, sent.compute_j + sent.upload_j)
        return events.GivenUp(
            at_s=at_s,
            token=sent.token,
            device=sent.device,
            reason=reason,
            cost=max(charged, LEAST_COST_OF_NOTHING),
            status=status,
        )

    def refuse(
        self, name: str, what: str, reason: str, at_s: float, token: str | None = None, *, unwritten: int = 0
    ) -> events.Refused:
        """Counted by the first word of the reason, with those that were not written down."""
        count = 1 + unwritten + self.refusals.get((name, reason.partition(":")[0]), 0)
        return events.Refused(at_s=at_s, name=name, what=what, reason=reason, token=token, count=count)

    def end_by_rule(self, at_s: float) -> events.Steered | None:
        """The run ends for what its settings say, beside ``run.rounds``; None where it goes on."""
        live, started_s, judged = self.live, self.state.started_s, self.judged
        if self.ending is not None or started_s is None:
            return None
        most_s, target, most = live.stop_after_s, live.stop_at_metric, live.stop_without_progress
        holds = {
            f"live.stop_after_s = {most_s}": most_s is not None and (at_s - started_s) * live.time_scale >= most_s,
            f"live.stop_at_metric = {target}": target is not None and judged.reaches(self.config.learning, target),
            f"live.stop_without_progress = {most}": most is not None and judged.since >= most,
        }
        rule = next((rule for rule, ends in holds.items() if ends), None)
        return None if rule is None else events.Steered(at_s=at_s, command="finish", reason=rule)

    def quarantine(self, name: str, reason: str, at_s: float) -> events.Quarantined:
        return events.Quarantined(
            at_s=at_s, name=name, reason=reason, until_s=at_s + self.live.quarantine_s / self.live.time_scale
        )

    def _impossible(self, offer: Accept, terms: Terms, joined: events.Joined) -> str | None:
        """Why an offer cannot be what a device that keeps to its limits, and to what it announced, would make."""
        compute, samples = self.config.compute, offer.samples or joined.samples
        if abs(samples - joined.samples) > most_stray(joined.samples, joined.own.get("samples_spread", 0.0)):
            return f"offer: samples = {samples}, and {joined.samples} were announced"
        if not compute.cpu_hz_floor <= offer.cpu_hz <= 10.0 * compute.cpu_hz_max:
            return f"offer: cpu_hz = {offer.cpu_hz:g} is out of range"
        if not within(offer.power_w, terms.max_power_w):
            return f"offer: power_w = {offer.power_w:g} is over max_power_w"
        time_s, energy_j = offer.compute_s + offer.upload_s, offer.compute_j + offer.upload_j
        most = 1.0 if self.keeps_limits else 100.0
        if not within(time_s, most * terms.max_time_s):
            return f"offer: {time_s:g} s is over max_time_s"
        if not within(energy_j, most * terms.max_energy_j):
            return f"offer: {energy_j:g} J is over max_energy_j"
        return None


def _asked(decision: Decision, total_queue: float, at_s: float) -> events.Asked:
    return events.Asked(
        at_s=at_s,
        round=decision.round,
        device=decision.device,
        score=decision.score,
        queue=decision.queue,
        total_queue=total_queue,
        known_gain=None if math.isnan(decision.known_gain) else decision.known_gain,
        known_gain_age_s=None if math.isnan(decision.known_gain_age_s) else decision.known_gain_age_s,
    )


def _if_new(value: float | None, known: Fact | None) -> float | None:
    """To four digits: telemetry is for thousands of devices, and an answer is exact."""
    if value is None or (known is not None and f"{value:.4g}" == f"{known.value:.4g}"):
        return None
    return float(f"{value:.4g}")
