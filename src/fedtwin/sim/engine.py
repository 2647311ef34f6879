"""What the two simulators share: the world answers for the devices, the coordinator decides, rows come out."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fedtwin.config import Config
from fedtwin.coordinator import Coordinator, Decision, Now, Snapshot
from fedtwin.draws import Purpose, ranks
from fedtwin.formulas.cost import within
from fedtwin.formulas.power import REASONS, Plan, full_power_plan, no_answer, optimal_plan
from fedtwin.policies import OraclePolicy, Prediction, knobs_of, policy_of, power_rule
from fedtwin.prediction import predict
from fedtwin.records import Row
from fedtwin.twin import new_twin
from fedtwin.twin.update import Offer
from fedtwin.world.world import Draw, World

if TYPE_CHECKING:
    from fedtwin.learning.learner import Learner

Emit = Callable[[Row, float], None]
Pause = Callable[[], None]


class Asked(NamedTuple):
    """A decision, and what the device in question found when it was asked."""

    decision: Decision
    snapshot: Snapshot | None
    total_queue: float
    draw: Draw
    plan: Plan


class Engine:
    """The state of one simulated run: world, coordinator and virtual clock. World and ties are the seed's, if not given."""

    def __init__(
        self,
        config: Config,
        *,
        trace: bool = False,
        learner: "Learner | None" = None,
        world: World | None = None,
        tie_ranks: list[int] | None = None,
    ) -> None:
        self.config = config
        self.learner = learner
        self.world = World(config) if world is None else world
        self.clock_s = 0.0
        self.trace = trace
        devices, seed = len(self.world.fleet), config.run.seed
        policy = policy_of(config)
        self._plan = optimal_plan if power_rule(config) == "optimal" else full_power_plan
        self.tie_ranks = ranks(seed, Purpose.TIES, devices).tolist() if tie_ranks is None else tie_ranks
        self.coordinator = Coordinator(
            new_twin([device.samples for device in self.world.fleet], config.objective.min_mean_samples),
            policy,
            knobs_of(config),
            self.tie_ranks,
            policy_name=config.policy.name,
            learn_on_selection=config.run.mode == "async" and config.policy.feedback == "on-selection",
            predict=self._predict,
            gain_known=config.twin.gain,
        )
        self._true_cost = self._cost_of_this_round if isinstance(policy, OraclePolicy) else None
        self._sounding = self._gain_of_this_moment if config.twin.gain == "current" else None

    def ask(self, device: int, round_: int) -> tuple[Draw, Plan]:
        """The device looks at its channel and its CPU and plans its power; an infeasible plan is a decline."""
        draw = self.world.draw(device, round_, self.clock_s)
        if not draw.available:
            return draw, no_answer()
        return draw, self._plan(self.world.terms_of(device), draw.gain, draw.cpu_hz, draw.samples)

    def ask_the_best(self) -> Asked | None:
        """The device of least score answers: the coordinator has heard a decline, an acceptance is the caller's to tell."""
        now = Now(self.clock_s, self._sounding, self._true_cost)
        snapshot = self.coordinator.snapshot(now) if self.trace else None
        decision = self.coordinator.choose(now)
        if decision is None:
            return None
        total_queue = self.coordinator.total_queue()
        draw, plan = self.ask(decision.device, decision.round)
        if not plan.feasible:
            gain, cpu_hz = (draw.gain, draw.cpu_hz) if draw.available else (None, None)
            self.coordinator.decline(decision.device, gain, cpu_hz, self.clock_s)
        return Asked(decision, snapshot, total_queue, draw, plan)

    def accept(self, device: int, draw: Draw, plan: Plan, *, counted: bool = True, in_vain: bool = False) -> None:
        """The device takes the round and downloads the model; who trains ``in_vain`` is dropped later."""
        time_s, energy_j = plan.compute_s + plan.upload_s, plan.compute_j + plan.upload_j
        offer = Offer(draw.gain, draw.cpu_hz, plan.compute_s, plan.cost, time_s, energy_j, draw.samples)
        self.coordinator.accept(device, offer, self.clock_s, counted=counted)
        if self.learner is not None and not in_vain:
            self.learner.downloaded(device, self.coordinator.round, draw.samples)

    def report(self, device: int, cost: float, charged_s: float, plan: Plan) -> tuple[int, float | None]:
        """The device's upload arrives now: its staleness, and its training loss where a model is trained and took it."""
        energy_j, train_loss = plan.compute_j + plan.upload_j, None
        if self.learner is not None:
            self.learner.evaluate_until(self.clock_s, self.coordinator.round)
            self.learner.spent(energy_j, cost)
            train_loss = self.learner.uploaded(device, self.coordinator.round, self.clock_s)
        staleness = self.coordinator.report(
            device, cost, plan.compute_s, self.clock_s, time_s=charged_s, energy_j=energy_j, train_loss=train_loss
        )
        return staleness, train_loss

    def drop(self, device: int, cost: float, charged_s: float, plan: Plan) -> None:
        """The round ends without the device's upload: it is charged, and what it has spent is wasted."""
        energy_j = plan.compute_j + plan.upload_j
        if self.learner is not None:
            self.learner.evaluate_until(self.clock_s, self.coordinator.round)
            self.learner.spent(energy_j, cost)
        self.coordinator.give_up(device, cost, "idle", time_s=charged_s, energy_j=energy_j)

    def row(
        self,
        asked: Asked,
        cost: float,
        arrived: int | None = None,
        staleness: int | None = None,
        train_loss: float | None = None,
    ) -> Row:
        """One decision as it is written down; ``cost`` is what it is charged."""
        decision, snapshot, total_queue, draw, plan = asked
        terms, spent = self.world.terms_of(decision.device), plan.feasible
        return Row(
            round=decision.round,
            clock_s=self.clock_s,
            arrived=arrived,
            device=decision.device,
            gain=draw.gain,
            cpu_hz=draw.cpu_hz,
            samples=draw.samples,
            power_w=plan.power_w,
            compute_s=plan.compute_s if spent else None,
            upload_s=plan.upload_s if spent else None,
            compute_j=plan.compute_j if spent else None,
            upload_j=plan.upload_j if spent else None,
            cost=cost if spent else None,
            score=decision.score,
            queue=decision.queue,
            total_queue=total_queue,
            staleness=staleness,
            declined=not spent,
            time_ok=not spent or within(plan.compute_s + plan.upload_s, terms.max_time_s),
            energy_ok=not spent or within(plan.compute_j + plan.upload_j, terms.max_energy_j),
            decline_reason=None if spent else REASONS[plan.reason],
            known_gain=_told(decision.known_gain),
            known_gain_age_s=_told(decision.known_gain_age_s),
            train_loss=train_loss,
            available=snapshot.available if snapshot else None,
            queues=snapshot.queues if snapshot else None,
            scores=snapshot.scores if snapshot else None,
            explained=explained_of(snapshot, decision.device),
        )

    def _predict(self, device: int, gain: float, cpu_hz: float, samples: float) -> Prediction:
        return predict(self._plan, self.world.terms_of(device), gain, cpu_hz, samples)

    def _cost_of_this_round(self, device: int) -> float:
        return self.ask(device, self.coordinator.round)[1].cost

    def _gain_of_this_moment(self, device: int) -> float:
        return self.world.gain(device, self.coordinator.round, self.clock_s)


def explained_of(snapshot: Snapshot | None, device: int) -> str | None:
    """The parts of the chosen device's score, as JSON."""
    if snapshot is None or snapshot.explained is None:
        return None
    return json.dumps(snapshot.explained[device], ensure_ascii=False)


def _told(value: float) -> float | None:
    return None if math.isnan(value) else value
