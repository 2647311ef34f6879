"""The edge server's decisions: twin and policy, with no clock, no input or output and no randomness of its own.

The simulator and the live server drive it alike. A round: ``open_round``; then ``choose`` a device, ask it, and tell the
coordinator what it answered (``accept`` or ``decline``), until one accepts (M in a synchronous round) or nobody is left;
a device is asked at most once a round. When an upload arrives: ``report``; when it never does: ``give_up``.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from fedtwin.errors import FedtwinError
from fedtwin.policies.base import Knobs, OraclePolicy, Policy, View, as_if_told, last_if_nan
from fedtwin.policies.failures import score_of, sentence_of_chance, sentence_of_nan
from fedtwin.twin import update
from fedtwin.twin.state import Status, Twin, queue_at, total_queue
from fedtwin.twin.update import Offer
from fedtwin.usercode import is_ours

TrueCost = Callable[[int], float]


class Decision(NamedTuple):
    """The device with the smallest score at round t, with its score and queue as they stood."""

    round: int
    device: int
    score: float
    queue: float


class Snapshot(NamedTuple):
    """Every device as it stood at a decision: who could be asked, its queue, its score."""

    available: list[bool]
    queues: list[float]
    scores: list[float]


class Coordinator:
    """``ranks`` break ties; an oracle policy needs ``true_cost`` with every choice. ``policy_name`` is for error messages."""

    def __init__(
        self,
        twin: Twin,
        policy: Policy | OraclePolicy,
        knobs: Knobs,
        ranks: list[int],
        *,
        policy_name: str,
        learn_on_selection: bool,
    ) -> None:
        self.twin = twin
        self.round = 0
        self._policy, self._policy_name = policy, policy_name
        self._policy_is_users = not is_ours(getattr(getattr(policy.score, "__code__", None), "co_filename", ""))
        self._knobs = knobs
        self._ranks = ranks
        self._learn_on_selection = learn_on_selection
        self._asked: set[int] = set()

    def open_round(self) -> None:
        """The next round begins: every queue has grown by D_min, and everybody may be asked again."""
        self.round += 1
        self._asked.clear()

    def choose(self, true_cost: TrueCost | None = None) -> Decision | None:
        """n*(t), the arg min of the policy's score over the devices that may be asked; None when nobody is left."""
        best: tuple[float, int, View] | None = None
        a_number = False
        for device in range(len(self.twin.devices)):
            if not self._may_be_asked(device):
                continue
            view = self._view(device)
            number, rank = self._score(view, true_cost), self._ranks[device]
            score = last_if_nan(number)
            a_number = a_number or score == number
            if best is None or score < best[0] or (score == best[0] and rank < best[1]):
                best = score, rank, view
        if best is None:
            return None
        if not a_number and not self._asked:
            self._refuse_nan(true_cost)
        score, _, view = best
        if self._policy_is_users and (again := last_if_nan(self._score(view, true_cost))) != score:
            raise FedtwinError(sentence_of_chance(self._policy_name, view, score, again))
        self.mark_asked(view.device)
        return Decision(self.round, view.device, score, view.queue)

    def mark_asked(self, device: int) -> None:
        """The device has been asked in this round."""
        self._asked.add(device)

    def join(self, samples: int, at_s: float) -> int:
        """A device more; it loses ties against those before it. Returns its number."""
        self.twin = update.joined(self.twin, samples, max(self.round, 1), at_s)
        self._ranks.append(len(self._ranks))
        return len(self._ranks) - 1

    def set_status(self, device: int, status: Status) -> None:
        """The device is heard of again, not heard of any more, or left out."""
        self.twin = update.with_status(self.twin, device, status)

    def tell(self, device: int, gain: float | None, cpu_hz: float | None, at_s: float) -> None:
        """Telemetry came in."""
        self.twin = update.told(self.twin, device, gain, cpu_hz, at_s)

    def snapshot(self, true_cost: TrueCost | None = None) -> Snapshot:
        """What the decision about to be taken rests on, for every device."""
        views = [self._view(device) for device in range(len(self.twin.devices))]
        return Snapshot(
            [self._may_be_asked(view.device) for view in views],
            [view.queue for view in views],
            [last_if_nan(self._score(view, true_cost)) for view in views],
        )

    def total_queue(self) -> float:
        """Σ_n Q_n(t) at the current round, before its selection is accepted."""
        return total_queue(self.twin, self.round)

    def total_queue_at_the_end(self) -> float:
        """Σ_n Q_n(t + 1), when the current round is over."""
        return total_queue(self.twin, self.round + 1)

    def accept(self, device: int, offer: Offer, at_s: float, *, counted: bool = True) -> None:
        """The device takes the round. The first M dispatches are not counted in Γ, Q and the objective."""
        self.twin = update.accepted(self.twin, device, self.round, offer, at_s, counted=counted)
        if counted and self._learn_on_selection:
            self.twin = update.observed(self.twin, device, offer.cost)

    def decline(self, device: int, gain: float | None, cpu_hz: float | None, at_s: float) -> None:
        """The device finds no power that meets C5 and C6: nothing is spent, and the next best is asked."""
        self.twin = update.declined(self.twin, device, gain, cpu_hz, at_s)

    def report(self, device: int, cost: float, compute_s: float, at_s: float) -> int:
        """An upload arrived and is mixed in. Returns its staleness: aggregations between its download and its upload."""
        known = self.twin.devices[device]
        if known.status != "in-flight" or known.model_version is None:
            raise ValueError(f"device {device} reports an update it was not asked for")
        staleness = self.twin.model_version - known.model_version
        if known.counted and not self._learn_on_selection:
            self.twin = update.observed(self.twin, device, cost)
        self.twin = update.uploaded(self.twin, device, compute_s, at_s)
        return staleness

    def report_late(self) -> None:
        """An upload is mixed in whose task had been given up."""
        self.twin = update.uploaded_late(self.twin)

    def give_up(self, device: int, cost: float, status: Status) -> None:
        """The update will not come; it is charged ``cost``, so that a device that never delivers does not look cheap."""
        known = self.twin.devices[device]
        if known.counted and not self._learn_on_selection:
            self.twin = update.observed(self.twin, device, cost)
        self.set_status(device, status)

    def _may_be_asked(self, device: int) -> bool:
        return self.twin.devices[device].status == "idle" and device not in self._asked

    def _view(self, device: int) -> View:
        known = self.twin.devices[device]
        return View(
            self.round,
            device,
            known.samples.value,
            known.selections,
            known.observations,
            known.mean_cost,
            queue_at(known.queue, known.queue_round, self.round, self.twin.min_mean_samples),
            math.nan if known.gain is None else known.gain.value,
            math.nan if known.compute_s is None else known.compute_s.value,
        )

    def _score(self, view: View, true_cost: TrueCost | None) -> float:
        if isinstance(self._policy, Policy):
            return score_of(self._policy_name, self._policy.score, view, self._knobs)
        if true_cost is None:
            raise TypeError("an oracle policy chooses only where the true costs are known")
        return score_of(self._policy_name, self._policy.score, view, true_cost(view.device), self._knobs)

    def _refuse_nan(self, true_cost: TrueCost | None) -> None:
        """Nobody has a score in this round: an error, unless it is only for want of what the devices have not told yet."""
        idle = [as_if_told(self._view(device)) for device in range(len(self.twin.devices)) if self._may_be_asked(device)]
        if all(math.isnan(self._score(view, true_cost)) for view in idle):
            raise FedtwinError(sentence_of_nan(self._policy_name, self.round))
