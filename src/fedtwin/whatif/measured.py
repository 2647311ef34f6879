"""Updates of boards come to other seconds and joules than the paper's model makes of what the boards tell.

What a board predicts decides whether it declines, so limits are taken in its units: ``word`` is predicted over modelled. What
is then measured, against the prediction, goes on as it was: over stretches of updates as long as the one that is asked about,
and drawn for every world by Student's t around the mean of the logs, of time, energy and cost together. Cost has a factor of
its own because a task that came to nothing is charged more than what it took.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedtwin.formulas.cost import ROUNDING, cost
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.live.run.round import LEAST_COST_OF_NOTHING
from fedtwin.policies import power_rule
from fedtwin.prediction import predict
from fedtwin.runs import Run
from fedtwin.runs.rows import Answers, Flags, Floats, Ints
from fedtwin.whatif.answer import NUMBERS, Played
from fedtwin.whatif.fork import Fork

STRETCHES = 8
"""So many at least, each shorter then than what is asked about: fewer tell too little of how they differ."""
WIDE = 1e3
"""By so much limits are wider where a model is to answer, whatever it would decline."""
MEAN_COST, MEAN_TIME_S, MEAN_ENERGY_J = (NUMBERS.index(name) for name in ("mean_cost", "mean_time_s", "mean_energy_j"))


@dataclass(frozen=True)
class Measured:
    """``word`` of seconds and joules. One row of ``logs`` for each stretch: of measured over predicted seconds and joules, and
    of what was charged over the cost of what was measured. ``predicted`` seconds and joules are of every update.
    """

    word: tuple[float, float]
    logs: Floats
    device: Ints
    predicted: Floats

    @property
    def factors(self) -> tuple[float, float]:
        """Measured over modelled seconds and joules, as they are most likely."""
        time, energy, _ = np.exp(self.logs.mean(axis=0)).tolist()
        return self.word[0] * time, self.word[1] * energy

    def sample(self, count: int, seed: int) -> Floats:
        """The factors of the logs in so many worlds; the same seed gives the same ones."""
        random, stretches = np.random.default_rng(seed).spawn(1)[0], len(self.logs)
        values, vectors = np.linalg.eigh(np.cov(self.logs, rowvar=False))
        root = vectors * np.sqrt(np.maximum(values, 0.0) * (1.0 + 1.0 / stretches))
        heavy = np.sqrt((stretches - 1) / random.chisquare(stretches - 1, size=(count, 1)))
        found: Floats = np.exp(self.logs.mean(axis=0) + heavy * (random.standard_normal((count, 3)) @ root.T))
        return found

    def time_share(self, fork: Fork) -> float:
        """The part of time in the cost of all updates, as they were predicted, by the weights and limits of the fork."""
        weight = fork.config.objective.energy_weight
        limit_s, limit_j = (fork.own[name][self.device] for name in ("max_time_s", "max_energy_j"))
        of_time = float(((1.0 - weight) * self.predicted[:, 0] / limit_s).sum())
        of_energy = float((weight * self.predicted[:, 1] / limit_j).sum())
        return of_time / (of_time + of_energy) if of_time + of_energy > 0.0 else 1.0


def measured_by(run: Run, fork: Fork, rounds: int) -> Measured | None:
    """None where nothing came otherwise, where too little has ended, and of synchronous rounds, charged as a whole."""
    if not fork.live or fork.sync:
        return None
    rows, predicted, in_vain = _ended(run, fork)
    length = min(rounds, len(rows) // STRETCHES)
    if length == 0:
        return None
    stretches = len(rows) // length
    word = _ratio(predicted.sum(axis=0), _modelled(fork, rows).sum(axis=0))
    took = np.column_stack([rows.time_s, rows.energy_j])
    terms = [fork.terms_of(device) for device in rows.device.tolist()]
    due = np.array([cost(own, time_s, energy_j) for own, (time_s, energy_j) in zip(terms, took.tolist(), strict=True)])
    charged = np.where(in_vain, np.maximum(due, LEAST_COST_OF_NOTHING), due)
    after, before = (
        np.column_stack([values, costs])[-stretches * length :].reshape(stretches, -1, 3).sum(axis=1)
        for values, costs in ((took, charged), (predicted, due))
    )
    factors = _ratio(after, before)
    if np.allclose(factors, 1.0, rtol=ROUNDING, atol=0.0) and np.allclose(word, 1.0, rtol=ROUNDING, atol=0.0):
        return None
    return Measured((float(word[0]), float(word[1])), np.log(factors), rows.device, predicted)


def _ended(run: Run, fork: Fork) -> tuple[Answers, Floats, Flags]:
    """The updates that were charged by then, what their boards predicted, and which of them came to nothing."""
    tasks = run.tasks.select(["round", "device", "ended_s", "predicted_s", "predicted_j", "outcome"]).to_pydict()
    over = {
        (round_, device): (time_s, energy_j, outcome.startswith("given up"))
        for round_, device, ended_s, time_s, energy_j, outcome in zip(*tasks.values(), strict=True)
        if ended_s is not None and ended_s <= fork.clock_s
    }
    rows = fork.rows.only(~fork.rows.declined & ~fork.rows.silent & (fork.rows.round > 0))
    found = [over.get(key) for key in zip(rows.round.tolist(), rows.device.tolist(), strict=True)]
    known = [one for one in found if one is not None]
    predicted = np.array([one[:2] for one in known], dtype=np.float64).reshape(-1, 2)
    in_vain = np.array([one[2] for one in known], dtype=bool)
    return rows.only(np.array([one is not None for one in found], dtype=bool)), predicted, in_vain


def _modelled(fork: Fork, rows: Answers) -> Floats:
    """Seconds and joules that a future would have, at the link, the CPU and the samples that the device told."""
    rule = optimal_plan if power_rule(fork.config) == "optimal" else full_power_plan
    terms = [fork.terms_of(device) for device in range(fork.devices)]
    wide = [one._replace(max_time_s=WIDE * one.max_time_s, max_energy_j=WIDE * one.max_energy_j) for one in terms]
    told = zip(rows.device.tolist(), rows.gain.tolist(), rows.cpu_hz.tolist(), rows.samples.tolist(), strict=True)
    found = [predict(rule, wide[device], gain, cpu_hz, float(samples)) for device, gain, cpu_hz, samples in told]
    return np.array([(one.time_s, one.energy_j) for one in found], dtype=np.float64).reshape(-1, 2)


def _ratio(after: Floats, before: Floats) -> Floats:
    """1 where there is nothing to compare."""
    there = np.isfinite(after) & np.isfinite(before) & (after > 0.0) & (before > 0.0)
    found: Floats = np.divide(after, before, out=np.ones_like(after), where=there)
    return found


def by_their_word(fork: Fork, measured: Measured) -> Fork:
    """With limits in the units of the model: a board declines by what it predicts itself, and its cost is that of its word."""
    time, energy = measured.word
    own = {**fork.own, "max_time_s": fork.own["max_time_s"] / time, "max_energy_j": fork.own["max_energy_j"] / energy}
    return replace(fork, own=own)


def as_measured(played: Played, factors: Floats, measured: Measured, fork: Fork) -> Played:
    """A world, played by their word, in which updates come to so many times what is predicted."""
    numbers, (time, energy, charged), share = played.numbers.copy(), factors.tolist(), measured.time_share(fork)
    dearer, longer = charged * (share * time + (1.0 - share) * energy), measured.word[0] * time
    numbers[MEAN_COST] *= dearer
    numbers[MEAN_TIME_S] *= longer
    numbers[MEAN_ENERGY_J] *= measured.word[1] * energy
    clock_s = fork.clock_s + longer * (played.clock_s - fork.clock_s)
    return replace(played, clock_s=clock_s, mean_cost=played.mean_cost * dearer, numbers=numbers)
