"""Who is chosen, what it costs, and what the queues do: Sections IV and V as far as nothing is trained."""

import math

import numpy as np

from benchmarks.claims.fleets import rows, summaries, values, with_interval
from fedtwin.config import load_config
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.policies.cu_ucb import bonus

FLEETS = 20
LONG = 10_000
WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)


def order() -> str:
    """Cost of CU-UCB, and how far the baselines are above it."""
    schemes = ("CU-UCB", "As-Q-only", "As-fairness", "Sy-fairness")
    ours, *others = (values(summaries(scheme, FLEETS, 3000), "mean_cost") for scheme in schemes)
    above = [f"{scheme} +{with_interval(cost - ours, 4)}" for scheme, cost in zip(schemes[1:], others, strict=True)]
    return f"CU-UCB {with_interval(ours, 4)}, {', '.join(above)}"


def footnote() -> str:
    """As-Q-only beside CU-UCB: cost, energy, time."""
    ours, theirs = (summaries(scheme, FLEETS, LONG) for scheme in ("CU-UCB", "As-Q-only"))
    above = {name: values(theirs, name) - values(ours, name) for name in ("mean_cost", "mean_energy_j", "mean_time_s")}
    return (
        f"cost +{with_interval(above['mean_cost'], 4)}, energy +{with_interval(above['mean_energy_j'], 4)} J, "
        f"time {with_interval(above['mean_time_s'], 4)} s"
    )


def decomposition() -> str:
    """Of the way from fairness at full power to CU-UCB, the share that is left after power control: scheduling's."""
    shares = []
    for weight in WEIGHTS:
        changes = {"objective__energy_weight": weight}
        full = values(summaries("fairness", 10, LONG, **changes), "mean_cost")
        power = values(summaries("fairness", 10, LONG, policy__power="optimal", **changes), "mean_cost")
        ours = values(summaries("cu-ucb", 10, LONG, **changes), "mean_cost")
        shares.append(with_interval(100 * (power - ours) / (full - ours), 0, " %"))
    return ", ".join(shares)


def waiting() -> str:
    """How long a device of a synchronous round waits for the slowest, of the round's time."""
    shares = []
    for seed in range(FLEETS):
        table = rows("Sy-fairness", seed, 3000)
        own = np.asarray(table["compute_s"]) + np.asarray(table["upload_s"])
        number = np.asarray(table["round"])
        slowest = np.array([own[number == k].max() for k in range(1, number.max() + 1)])[number - 1]
        shares.append(100 * (1 - own.mean() / slowest.mean()))
    return with_interval(shares, 1, " %")


def updates() -> str:
    """Virtual milliseconds per update at λ_e = 0.1."""
    found = []
    for scheme in ("CU-UCB", "As-fairness", "Sy-fairness"):
        runs = summaries(scheme, 5, 6000, objective__energy_weight=0.1)
        found.append(f"{scheme} {with_interval(1000 * values(runs, 'virtual_time_s') / values(runs, 'rounds'), 1)}")
    return ", ".join(found) + " ms"


def staleness() -> str:
    """The mean staleness, and the largest in each of the fleets' runs."""
    most = [int(np.nanmax(np.asarray(rows("CU-UCB", seed, LONG)["staleness"], float))) for seed in range(FLEETS)]
    mean = values(summaries("CU-UCB", FLEETS, LONG), "mean_staleness")
    return f"mean {mean.mean():.2f}, largest {min(most)} to {max(most)}"


def uploads() -> str:
    """The fewest samples of an upload, for three D_min, in the first fleet; and in how many fleets they are the same."""
    fewest = [
        [int(np.asarray(rows("CU-UCB", seed, 2000, objective__min_mean_samples=d)["samples"]).min()) for d in (0.5, 1.5, 2.5)]
        for seed in range(FLEETS)
    ]
    alike = sum(len(set(found)) == 1 for found in fewest)
    return f"{', '.join(map(str, fewest[0]))} at D_min = 0.5, 1.5, 2.5; alike in {alike} of {FLEETS} fleets"


def c1() -> str:
    """What the device that trained least got of D_min, in the worst fleet."""
    found = []
    for d_min in (0.5, 1.0, 1.5, 2.0, 2.5, 2.7):
        runs = summaries("CU-UCB", FLEETS, LONG, objective__min_mean_samples=d_min)
        found.append(f"{100 * values(runs, 'least_mean_samples').min() / d_min:.1f}")
    return f"{', '.join(found)} %"


def limits() -> str:
    """Updates over T_max or E_max, of all."""
    found = []
    for scheme in ("CU-UCB", "As-fairness"):
        runs = summaries(scheme, FLEETS, 3000)
        broken = 100 * (values(runs, "time_violations") + values(runs, "energy_violations")) / values(runs, "rounds")
        found.append(f"{scheme} {with_interval(broken, 1, ' %')}")
    return ", ".join(found)


def queue_rate() -> str:
    """Σ_n Q_n(t) / t at t = 1,000, 10,000 and 100,000, D_min = 2."""
    times = (1_000, 10_000, 100_000)
    settings = {"objective.min_mean_samples": 2.0, "run.rounds": times[-1]}
    jobs = [Job(load_config(overrides={**settings, "run.seed": seed}), times) for seed in range(5)]
    queues = np.array([outcome.series.total_queue for outcome in run_batch(jobs, workers=1)])
    return ", ".join(with_interval(queues[:, k] / t, 3) for k, t in enumerate(times))


def penalty() -> str:
    """Cost and C1 of the genie, which solves P1 with the truth, for three V."""
    found = []
    for v in (1e4, 1e5, 1e6):
        runs = summaries("genie", 5, LONG, policy__v=v)
        least = 100 * values(runs, "least_mean_samples").min()
        found.append(f"{with_interval(values(runs, 'mean_cost'), 4)} with C1 at {least:.0f} %")
    return ", ".join(found)


def bonus_clips() -> str:
    """The rounds in which the first and the last device stops being taken for free, in figure 5 and at λ_e = 0.1."""
    found = []
    for name, changes in (("figure 5", {"objective__min_mean_samples": 2.0}), ("λ_e = 0.1", {"objective__energy_weight": 0.1})):
        ends = [_ends_of_clipping(seed, **changes) for seed in range(FLEETS)]
        first, last = (np.array(column) for column in zip(*ends, strict=True))
        found.append(f"{name}: {first.min():.0f} to {last.max():.0f}, on average {first.mean():.0f} to {last.mean():.0f}")
    return "; ".join(found)


def _ends_of_clipping(seed: int, **changes: float) -> tuple[int, int]:
    """s̃_n is largest just after a selection of n, for its bonus grows with t until the next."""
    table = rows("cu-ucb", seed, LONG, **changes)
    sums: dict[int, tuple[int, float]] = {}
    ends: dict[int, int] = {}
    for round_, device, cost in zip(*(table[name].to_pylist() for name in ("round", "device", "cost")), strict=True):
        count, total = sums.get(device, (0, 0.0))
        sums[device] = count, total = count + 1, total + cost
        if device not in ends and total / count > bonus(round_ + 1, count, 1.0):
            ends[device] = round_ + 1
    return min(ends.values()), max(ends.values())


def evenness() -> str:
    """Selections of the device chosen least, of those of the one chosen most, at λ_e = 0.1 and 6,000 rounds."""
    found = []
    for d_min in (0.5, 1.5, 2.5):
        shares = []
        for seed in range(5):
            table = rows("CU-UCB", seed, 6000, objective__energy_weight=0.1, objective__min_mean_samples=d_min)
            counts = np.bincount(np.asarray(table["device"]), minlength=30)
            shares.append(counts.min() / counts.max())
        found.append(with_interval(shares, 2))
    return ", ".join(found)


def available() -> str:
    """N_A log₂ N_A against N log₂ N, with M − 1 of N in flight when one is chosen."""
    idle, devices = 30 - 15 + 1, 30
    return f"{idle * math.log2(idle):.0f} against {devices * math.log2(devices):.0f}"
