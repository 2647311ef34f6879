"""Made-up views, news and devices: the kind that a run makes, always the same ones."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import Config
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.formulas.terms import Terms, terms_of
from fedtwin.policies import Knobs, News, OraclePolicy, Policy, View
from fedtwin.prediction import predict
from fedtwin.twin.state import queue_at

LARGEST_ROUND = 10**5


class Device(NamedTuple):
    """One that is not selected for a while: all that a score with a lead may look at."""

    number: int
    samples: float
    selections: int
    mean_cost: float
    queue: float
    queue_round: int

    def view(self, round_: int, min_mean_samples: float) -> View:
        queue = queue_at(self.queue, self.queue_round, round_, min_mean_samples)
        seen, nothing = self.selections, math.nan
        return View(round_, self.number, self.samples, seen, seen, self.mean_cost, queue, nothing, nothing)


class Asked(NamedTuple):
    """A view, the knobs, the true cost that only an oracle is told, and whether there is anything the device did not tell."""

    view: View
    knobs: Knobs
    true_cost: float
    all_told: bool


def some_knobs(chance: np.random.Generator, settings: Any) -> Knobs:
    """Of every size, zero included."""
    v, bonus = chance.choice([0.0, 1e3, 1e5, 1e5, 1e8]), chance.choice([0.0, 0.01, 1.0, 1.0])
    d_min = chance.choice([0.0, 4e-5, 0.1, 1.0, 1.0, 2.5])
    return Knobs(float(v), float(bonus), int(chance.integers(0, 2**31)), float(d_min), settings)


def some_round(chance: np.random.Generator) -> int:
    return int(chance.integers(1, int(chance.choice([3, 50, 3000, LARGEST_ROUND]))))


def some_device(chance: np.random.Generator, round_: int) -> Device:
    """As it may be at a round: the queue stands as of its last selection, after which it is empty, or nearly."""
    selections = int(chance.integers(0, min(round_, int(chance.choice([2, 5, 500])))))
    queue = float(chance.choice([0.0, 0.0, 1.0, chance.uniform(0, 300)]))
    since = int(chance.integers(max(1, round_ - 1000), round_ + 1))
    mean_cost = float(chance.uniform(0.0, 1.0)) if selections else 0.0
    return Device(int(chance.integers(0, 300)), float(chance.integers(70, 101)), selections, mean_cost, queue, since)


def some_news(chance: np.random.Generator, round_: int, *, everything: bool = False) -> News:
    """What a device is heard of: a decline, a cost, a loss, or all but a decline."""
    kind = "all" if everything else chance.choice(["decline", "cost", "loss", "all"])
    cost, time_s, energy_j, loss = (float(number) for number in chance.uniform(0.01, 1.2, 4))
    nothing = math.nan
    if kind == "decline":
        return News(round_, nothing, nothing, nothing, nothing, True)
    if kind == "loss":
        return News(round_, nothing, nothing, nothing, loss, False)
    return News(round_, cost, time_s, energy_j, loss if kind == "all" else nothing, False)


def _terms_of(device: Device) -> Terms:
    """Of every third device some are its own."""
    terms = terms_of(Config())
    return terms if device.number % 3 else terms._replace(max_power_w=0.1, cycles_per_sample=3e6, max_time_s=0.7)


def some_question(
    chance: np.random.Generator,
    policy: Policy | OraclePolicy,
    settings: Any,
    state_after: Callable[[list[News], Knobs], Any],
) -> Asked:
    """A view as a run makes it: of a device never heard of, of one that only declined, of one that took part."""
    round_, knobs = some_round(chance), some_knobs(chance, settings)
    device = some_device(chance, round_)
    heard = str(chance.choice(["took part"] if device.selections else ["never", "declined", "took part"]))
    nothing, age_s = math.nan, float(chance.choice([0.0, chance.uniform(0.0, 50.0)]))
    gain, cpu_hz = float(10.0 ** chance.uniform(-14, -8)), float(chance.uniform(5e8, 3.5e9))
    compute_s = 5e6 * device.samples / cpu_hz
    if heard == "never":
        gain, age_s = (gain, 0.0) if chance.random() < 0.3 else (nothing, nothing)
        cpu_hz = nothing
    story = [some_news(chance, round_) for _ in range(int(chance.integers(0, 5)))] if heard != "never" else []
    all_told = heard == "took part" and bool(chance.random() < 0.8)
    if all_told:
        story.append(some_news(chance, round_, everything=True))
    took_part = heard == "took part"
    plan = optimal_plan if policy.power == "optimal" else full_power_plan
    view = device.view(round_, knobs.min_mean_samples)._replace(
        gain=gain,
        compute_s=compute_s if took_part else nothing,
        gain_age_s=age_s,
        compute_age_s=float(chance.uniform(0.0, 50.0)) if took_part else nothing,
        staleness=int(chance.integers(0, round_)),
        train_loss=story[-1].train_loss if all_told else nothing,
        prediction=predict(plan, _terms_of(device), gain, cpu_hz, device.samples) if policy.predicts else (),
        state=state_after(story, knobs) if policy.state is not None else (),
    )
    true_cost = float(chance.choice([math.inf, *chance.uniform(0.01, 1.0, 5)]))
    return Asked(view, knobs, true_cost, all_told)
