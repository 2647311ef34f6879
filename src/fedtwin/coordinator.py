"""The edge server's decisions: twin and policy, with no clock, no input or output and no randomness of its own.

The simulator and the live server drive it alike. A round: ``open_round``; then ``choose`` a device, ask it, and tell the
coordinator what it answered (``accept`` or ``decline``), until one accepts (M in a synchronous round) or nobody is left;
a device is asked at most once a round. When an upload arrives: ``report``; when it never does: ``give_up``.

``best`` is ``choose`` for whoever keeps several rounds open at once and knows itself who was asked in which: nothing changes.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from fedtwin.errors import FedtwinError
from fedtwin.policies.base import Knobs, News, OraclePolicy, Policy, Prediction, View, as_if_told, last_if_nan
from fedtwin.policies.checks import check_explanation, next_state, sentence_of_hidden_look, with_other_facts
from fedtwin.policies.failures import score_of, sentence_of_chance, sentence_of_nan
from fedtwin.twin import update
from fedtwin.twin.state import DeviceTwin, Fact, Status, Twin, mean_heard, queue_at, total_queue
from fedtwin.twin.update import Offer
from fedtwin.usercode import Questions, is_ours, of_device

GainKnown = Literal["last-heard", "current", "mean"]
Predict = Callable[[int, float, float, float], Prediction]
OfDevice = Callable[[int], float]


@dataclass(frozen=True)
class Now:
    """The moment of a decision, and what only a simulation can tell of it: true gains (channel sounding), true costs."""

    at_s: float
    gain: OfDevice | None = None
    true_cost: OfDevice | None = None


class Decision(NamedTuple):
    """The device with the smallest score at round t, with its score and queue as they stood."""

    round: int
    device: int
    score: float
    queue: float
    known_gain: float = math.nan
    known_gain_age_s: float = math.nan


class Snapshot(NamedTuple):
    """Every device as it stood at a decision: who could be asked, its queue, its score, and the parts of the score, if said."""

    available: list[bool]
    queues: list[float]
    scores: list[float]
    explained: list[dict[str, float]] | None


class Coordinator:
    """``ranks`` break ties; ``predict`` serves a policy that asks for it. ``policy_name`` is for error messages."""

    def __init__(
        self,
        twin: Twin,
        policy: Policy | OraclePolicy,
        knobs: Knobs,
        ranks: list[int],
        *,
        policy_name: str,
        learn_on_selection: bool,
        predict: Predict,
        gain_known: GainKnown = "last-heard",
    ) -> None:
        self.twin = twin
        self.round = 0
        self._policy, self._policy_name = policy, policy_name
        self._policy_is_users = not is_ours(getattr(getattr(policy.score, "__code__", None), "co_filename", ""))
        called = f"policy.name = {policy_name!r}"
        self._scored, self._observed = Questions(called, policy.score), Questions(called, policy.observe)
        self._knobs = knobs
        self._ranks = ranks
        self._learn_on_selection = learn_on_selection
        self._predict, self._gain_known = predict, gain_known
        self._states: list[Any] = [self._first_state() for _ in twin.devices]
        self._asked: set[int] = set()

    def use(self, knobs: Knobs) -> None:
        """The policy's settings from now on."""
        self._knobs = knobs

    def open_round(self) -> None:
        """The next round begins: every queue has grown by D_min, and everybody may be asked again."""
        self.round += 1
        self._asked.clear()

    def choose(self, now: Now) -> Decision | None:
        """n*(t), the arg min of the policy's score over the devices that may be asked; None when nobody is left."""
        decision = self.best(now, self.round, self._asked)
        if decision is not None:
            self._asked.add(decision.device)
        return decision

    def best(self, now: Now, round_: int, left_out: Collection[int]) -> Decision | None:
        """The same for any round that is open, without who is left out; nothing changes, and who is asked is not marked."""
        best: tuple[float, int, View] | None = None
        a_number = False
        for device in range(len(self.twin.devices)):
            if not self._may_be_asked(device, round_, left_out):
                continue
            view = self.view(device, now, round_)
            number, rank = self._score(view, now), self._ranks[device]
            score = last_if_nan(number)
            if self._policy_is_users and self._scored.wants(device):
                self._scored.keep(of_device(device, round_), partial(score_of, *self._question(view, now)), number)
            a_number = a_number or score == number
            if best is None or score < best[0] or (score == best[0] and rank < best[1]):
                best = score, rank, view
        if best is None:
            return None
        if not a_number and not left_out:
            self._refuse_nan(now, round_)
        score, _, view = best
        if self._policy_is_users:
            self._hold_to_its_word(view, score, now)
        return Decision(round_, view.device, score, view.queue, view.gain, view.gain_age_s)

    def join(self, samples: int, at_s: float) -> int:
        """A device more; it loses ties against those before it. Returns its number."""
        self.twin = update.joined(self.twin, samples, max(self.round, 1), at_s)
        self._ranks.append(len(self._ranks))
        self._states.append(self._first_state())
        return len(self._ranks) - 1

    def resize(self, device: int, samples: int, at_s: float) -> None:
        """The device has so many samples now."""
        self.twin = update.resized(self.twin, device, samples, at_s)

    @property
    def ranks(self) -> Sequence[int]:
        """Who wins a tie: the device with the smaller one."""
        return self._ranks

    @property
    def questions(self) -> list[Questions]:
        """What a policy of the user's own was asked."""
        return [self._scored, self._observed]

    @property
    def states(self) -> Sequence[Any]:
        """What the policy keeps of every device, empty tuples where it keeps nothing."""
        return self._states

    def go_on(self, round_: int, states: Sequence[Any] | None) -> None:
        """As it stood in a round, with what the policy had kept of every device."""
        self.round = round_
        if states is not None:
            self._states = list(states)

    def set_status(self, device: int, status: Status) -> None:
        """The device is heard of again, not heard of any more, or left out."""
        self.twin = update.with_status(self.twin, device, status)

    def tell(self, device: int, gain: float | None, cpu_hz: float | None, at_s: float) -> None:
        """Telemetry came in."""
        self.twin = update.told(self.twin, device, gain, cpu_hz, at_s)

    def snapshot(self, now: Now) -> Snapshot:
        """What the decision about to be taken rests on, for every device."""
        views = [self.view(device, now) for device in range(len(self.twin.devices))]
        scores = [last_if_nan(self._score(view, now)) for view in views]
        return Snapshot(
            [self._may_be_asked(view.device, self.round, self._asked) for view in views],
            [view.queue for view in views],
            scores,
            [self._explained(view, score) for view, score in zip(views, scores, strict=True)] if self._policy.explain else None,
        )

    def explain(self, device: int, now: Now) -> dict[str, float]:
        """The parts that the device's score is the sum of, by name; empty where the policy does not say."""
        view = self.view(device, now)
        return self._explained(view, last_if_nan(self._score(view, now)))

    def _explained(self, view: View, score: float) -> dict[str, float]:
        if self._policy.explain is None:
            return {}
        return check_explanation(self._policy_name, self._policy.explain, view, self._knobs, score)

    def total_queue(self) -> float:
        """Σ_n Q_n(t) at the current round, before its selection is accepted."""
        return total_queue(self.twin, self.round)

    def total_queue_at_the_end(self) -> float:
        """Σ_n Q_n(t + 1), when the current round is over."""
        return total_queue(self.twin, self.round + 1)

    def accept(self, device: int, offer: Offer, at_s: float, *, counted: bool = True, round_: int | None = None) -> None:
        """The device takes the round. The first M dispatches are not counted in Γ, Q and the objective."""
        self.twin = update.accepted(self.twin, device, round_ or self.round, offer, at_s, counted=counted)
        if counted and self._learn_on_selection:
            self._observe(device, offer.cost, offer.time_s, offer.energy_j, None)

    def decline(self, device: int, gain: float | None, cpu_hz: float | None, at_s: float, *, round_: int | None = None) -> None:
        """The device finds no power that meets C5 and C6, or is not there: nothing is spent, and the next best is asked."""
        self.twin = update.declined(self.twin, device, gain, cpu_hz, at_s)
        self._hear(device, News(round_ or self.round, math.nan, math.nan, math.nan, math.nan, True))

    def report(
        self,
        device: int,
        cost: float,
        compute_s: float,
        at_s: float,
        *,
        time_s: float,
        energy_j: float,
        train_loss: float | None = None,
    ) -> int:
        """An upload arrived and is mixed in. Returns its staleness: aggregations between its download and its upload."""
        known = self.twin.devices[device]
        staleness = self.staleness_of(device)
        if known.counted and not self._learn_on_selection:
            self._observe(device, cost, time_s, energy_j, train_loss)
        elif train_loss is not None:
            self._hear(device, News(self.round, math.nan, math.nan, math.nan, train_loss, False))
        self.twin = update.uploaded(self.twin, device, compute_s, at_s, train_loss)
        return staleness

    def staleness_of(self, device: int) -> int:
        """Aggregations since the device in flight downloaded the model."""
        known = self.twin.devices[device]
        if known.status != "in-flight" or known.model_version is None:
            raise ValueError(f"device {device} reports an update it was not asked for")
        return self.twin.model_version - known.model_version

    def report_late(self) -> None:
        """An upload is mixed in whose task had been given up."""
        self.twin = update.uploaded_late(self.twin)

    def give_up(self, device: int, cost: float, status: Status, *, time_s: float, energy_j: float) -> None:
        """The update will not come; it is charged ``cost``, so that a device that never delivers does not look cheap."""
        known = self.twin.devices[device]
        if known.counted and not self._learn_on_selection:
            self._observe(device, cost, time_s, energy_j, None)
        self.set_status(device, status)

    def _observe(self, device: int, cost: float, time_s: float, energy_j: float, train_loss: float | None) -> None:
        self.twin = update.observed(self.twin, device, cost, time_s, energy_j)
        loss = math.nan if train_loss is None else train_loss
        self._hear(device, News(self.round, cost, time_s, energy_j, loss, False))

    def _hear(self, device: int, news: News) -> None:
        """The policy's own state of the device changes, if it has one."""
        policy = self._policy
        if policy.state is not None:
            question = self._policy_name, policy, self._states[device], news, self._knobs, device
            self._states[device] = next_state(*question)
            if self._observed.wants(device):
                self._observed.keep(of_device(device, news.round), partial(next_state, *question), self._states[device])

    def _first_state(self) -> Any:
        return self._policy.state() if self._policy.state is not None else ()

    def _may_be_asked(self, device: int, round_: int, left_out: Collection[int]) -> bool:
        """Who has taken a later round since, or joined in one, is not asked in this one: its queue is that of later rounds."""
        known = self.twin.devices[device]
        return known.status == "idle" and device not in left_out and known.queue_round <= round_

    def view(self, device: int, now: Now, round_: int | None = None) -> View:
        """What the policy may look at, in the newest round or another that is open."""
        known, twin, round_ = self.twin.devices[device], self.twin, self.round if round_ is None else round_
        gain, gain_age_s = self._gain(device, known, now)
        return View(
            round_,
            device,
            known.samples.value,
            known.selections,
            known.observations,
            known.mean_cost,
            queue_at(known.queue, known.queue_round, round_, twin.min_mean_samples),
            gain,
            _value(known.compute_s),
            gain_age_s,
            _age_s(known.compute_s, now),
            twin.model_version - (known.model_version or 0),
            _value(known.train_loss),
            self._prediction(device, known, gain) if self._policy.predicts else (),
            self._states[device],
        )

    def _gain(self, device: int, known: DeviceTwin, now: Now) -> tuple[float, float]:
        """What the twin believes of the link, and how old that is."""
        if self._gain_known == "current" and now.gain is not None:
            return now.gain(device), 0.0
        if self._gain_known == "mean":
            return mean_heard(known.gain_sum, known.gains), _age_s(known.gain, now)
        return _value(known.gain), _age_s(known.gain, now)

    def _prediction(self, device: int, known: DeviceTwin, gain: float) -> Prediction:
        return self._predict(device, gain, mean_heard(known.cpu_hz_sum, known.cpus), known.samples.value)

    def _score(self, view: View, now: Now) -> float:
        if isinstance(self._policy, Policy):
            return score_of(self._policy_name, self._policy.score, view, self._knobs)
        return score_of(*self._question(view, now))

    def _question(self, view: View, now: Now) -> tuple[Any, ...]:
        """What a score is asked with."""
        if isinstance(self._policy, Policy):
            return self._policy_name, self._policy.score, view, self._knobs
        if now.true_cost is None:
            raise TypeError("an oracle policy chooses only where the true costs are known")
        return self._policy_name, self._policy.score, view, now.true_cost(view.device), self._knobs

    def _hold_to_its_word(self, view: View, score: float, now: Now) -> None:
        """The same arguments give the same score; where a policy has a lead, so do other facts that change by themselves."""
        if self._policy.lead is not None and last_if_nan(self._score(with_other_facts(view), now)) != score:
            again = last_if_nan(self._score(view, now))
            if again == score:
                raise FedtwinError(sentence_of_hidden_look(self._policy_name, view))
            raise FedtwinError(sentence_of_chance(self._policy_name, view, score, again))
        if self._policy.lead is None and (again := last_if_nan(self._score(view, now))) != score:
            raise FedtwinError(sentence_of_chance(self._policy_name, view, score, again))

    def _refuse_nan(self, now: Now, round_: int) -> None:
        """Nobody has a score in this round: an error, unless it is only for want of what the devices have not told yet."""
        may_be = [device for device in range(len(self.twin.devices)) if self._may_be_asked(device, round_, ())]
        if all(math.isnan(self._score(as_if_told(self.view(device, now, round_)), now)) for device in may_be):
            raise FedtwinError(sentence_of_nan(self._policy_name, round_))


def _value(fact: Fact | None) -> float:
    return math.nan if fact is None else fact.value


def _age_s(fact: Fact | None, now: Now) -> float:
    return math.nan if fact is None else now.at_s - fact.learned_s
