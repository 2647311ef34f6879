"""Updates of boards come to other seconds and joules than the paper's model makes of what the boards tell.

By which factors, over stretches of updates as long as the one that is asked about, is drawn for every world from what they were
so far: Student's t around the mean of the logs, of time, energy and cost together. Cost has a factor of its own because a task
that came to nothing is charged more than what it took.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedtwin.formulas.cost import ROUNDING, cost
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.policies import power_rule
from fedtwin.prediction import predict
from fedtwin.runs import Run
from fedtwin.runs.rows import Answers, Floats
from fedtwin.whatif.answer import NUMBERS, Played
from fedtwin.whatif.fork import Fork

STRETCHES = 8
"""So many at least, each shorter then than what is asked about: fewer tell too little of how they differ."""
MEAN_COST, MEAN_TIME_S, MEAN_ENERGY_J = (NUMBERS.index(name) for name in ("mean_cost", "mean_time_s", "mean_energy_j"))


@dataclass(frozen=True)
class Measured:
    """One row of ``logs`` for each stretch of all the ``updates``: of measured over modelled seconds and joules, and of what
    was charged over the cost of what was measured.
    """

    logs: Floats
    updates: int

    @property
    def factors(self) -> tuple[float, float]:
        """Of time and of energy, as they are most likely."""
        time, energy, _ = np.exp(self.logs.mean(axis=0)).tolist()
        return time, energy

    def sample(self, count: int, seed: int) -> Floats:
        """The three factors in so many worlds; the same seed gives the same ones."""
        random, stretches = np.random.default_rng(seed).spawn(1)[0], len(self.logs)
        values, vectors = np.linalg.eigh(np.cov(self.logs, rowvar=False))
        root = vectors * np.sqrt(np.maximum(values, 0.0) * (1.0 + 1.0 / stretches))
        heavy = np.sqrt((stretches - 1) / random.chisquare(stretches - 1, size=(count, 1)))
        found: Floats = np.exp(self.logs.mean(axis=0) + heavy * (random.standard_normal((count, 3)) @ root.T))
        return found


def measured_by(run: Run, fork: Fork, rounds: int) -> Measured | None:
    """None where nothing came otherwise, where too little has ended, and of synchronous rounds, charged as a whole."""
    if not fork.live or fork.sync:
        return None
    rows = _ended(run, fork)
    modelled = _modelled(fork, rows)
    known = np.isfinite(modelled).all(axis=1)
    modelled, came_to = modelled[known], np.column_stack([rows.time_s, rows.energy_j, rows.cost])[known]
    length = min(rounds, len(modelled) // STRETCHES)
    if length == 0 or np.allclose(modelled, came_to, rtol=ROUNDING, atol=0.0):
        return None
    stretches = len(modelled) // length
    after, before = (_sums(values[-stretches * length :], stretches) for values in (came_to, modelled))
    factors = np.divide(after, before, out=np.ones_like(after), where=(after > 0.0) & (before > 0.0))
    return Measured(np.log(factors), len(modelled))


def _ended(run: Run, fork: Fork) -> Answers:
    """The updates that were charged by then."""
    tasks = run.tasks.select(["round", "device", "ended_s"]).to_pydict()
    over = {
        (round_, device)
        for round_, device, ended_s in zip(*tasks.values(), strict=True)
        if ended_s is not None and ended_s <= fork.clock_s
    }
    rows = fork.rows.only(~fork.rows.declined & ~fork.rows.silent & (fork.rows.round > 0))
    keys = zip(rows.round.tolist(), rows.device.tolist(), strict=True)
    return rows.only(np.array([key in over for key in keys], dtype=bool))


def _modelled(fork: Fork, rows: Answers) -> Floats:
    """Seconds and joules that a future would have, at the link, the CPU and the samples that the device told; and the cost of
    the seconds and joules that were measured.
    """
    rule = optimal_plan if power_rule(fork.config) == "optimal" else full_power_plan
    terms = [fork.terms_of(device) for device in range(fork.devices)]
    told = zip(rows.device.tolist(), rows.gain.tolist(), rows.cpu_hz.tolist(), rows.samples.tolist(), strict=True)
    found = [predict(rule, terms[device], gain, cpu_hz, float(samples)) for device, gain, cpu_hz, samples in told]
    took = zip(rows.device.tolist(), rows.time_s.tolist(), rows.energy_j.tolist(), strict=True)
    costs = [cost(terms[device], time_s, energy_j) for device, time_s, energy_j in took]
    triples = [(one.time_s, one.energy_j, due) for one, due in zip(found, costs, strict=True)]
    return np.array(triples, dtype=np.float64).reshape(-1, 3)


def _sums(values: Floats, stretches: int) -> Floats:
    found: Floats = values.reshape(stretches, -1, 3).sum(axis=1)
    return found


def as_measured(played: Played, factors: Floats, fork: Fork) -> Played:
    """A world in which updates take so many times the seconds and the joules that are modelled."""
    numbers, (time, energy, charged), objective = played.numbers.copy(), factors.tolist(), fork.config.objective
    of_time = (1.0 - objective.energy_weight) * numbers[MEAN_TIME_S] / objective.max_time_s
    of_energy = objective.energy_weight * numbers[MEAN_ENERGY_J] / objective.max_energy_j
    if not of_time + of_energy > 0.0:
        return played
    dearer = charged * (of_time * time + of_energy * energy) / (of_time + of_energy)
    numbers[MEAN_COST] *= dearer
    numbers[MEAN_TIME_S] *= time
    numbers[MEAN_ENERGY_J] *= energy
    clock_s = fork.clock_s + time * (played.clock_s - fork.clock_s)
    return replace(played, clock_s=clock_s, mean_cost=played.mean_cost * dearer, numbers=numbers)
