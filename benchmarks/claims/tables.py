"""What docs/claims.md quotes from the CSV files behind the figures of docs/results.md, by the item of its row."""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.accuracy_tables import Row
from fedtwin.experiments.analysis.learning_curves import LAST_FIFTH, mean_between, points_of
from fedtwin.experiments.analysis.statistics import paired_difference

RESULTS = Path(__file__).parents[2] / "docs" / "results"
BASELINES = ("As-Q-only", "As-fairness", "Random", "Sy-fairness")


def read(figure: str) -> list[Row]:
    with (RESULTS / f"figure_{figure}.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def number(row: Row, names: Sequence[str], digits: int, scale: float = 1.0) -> str:
    """A mean with its interval, as ``names`` call the three."""
    mean, low, high = (scale * float(row[name]) for name in names)
    return f"{mean:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})".replace("-", "−")


def cost(row: Row) -> str:
    return number(row, ("mean_cost", "low", "high"), 4)


def above(row: Row) -> str:
    return number(row, ("above_CU-UCB", "above_low", "above_high"), 4)


def of(figure: str, **wanted: object) -> list[Row]:
    return [row for row in read(figure) if all(_alike(row[key], value) for key, value in wanted.items())]


def joined(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def gaps_over_d_min() -> str:
    return joined(above(row) for row in of("3", scheme="As-Q-only"))


def worst_scheme() -> str:
    rows = [of("3", scheme=scheme, min_mean_samples=1.0)[0] for scheme in ("As-fairness", "Sy-fairness")]
    return f"As-fairness {cost(rows[0])}, Sy-fairness {cost(rows[1])}"


def cost_over_d_min() -> str:
    ours = of("3", scheme="CU-UCB")
    return f"{cost(ours[0])} at D_min = 0.5, {cost(ours[-1])} at 2.5"


def least_samples() -> str:
    schemes = ("CU-UCB", "As-Q-only", "As-fairness")
    least = [of("3", scheme=scheme, min_mean_samples=2.5)[0]["least_mean_samples"] for scheme in schemes]
    return joined(f"{scheme} {float(value):.2f}" for scheme, value in zip(schemes, least, strict=True))


def cost_over_weight() -> str:
    found = []
    for scheme in ("CU-UCB", "As-fairness"):
        low, high = (of("4", scheme=scheme, energy_weight=weight)[0] for weight in (0.1, 0.9))
        found.append(f"{scheme} {cost(low)} to {cost(high)}")
    return joined(found)


def time_and_energy() -> str:
    found = []
    for weight in (0.1, 0.9):
        for scheme in ("CU-UCB", "As-fairness"):
            row = of("4", scheme=scheme, energy_weight=weight)[0]
            found.append(f"{scheme} {float(row['mean_time_s']):.3f} s, {float(row['mean_energy_j']):.3f} J")
    return f"λ_e = 0.1: {found[0]}; {found[1]}; λ_e = 0.9: {found[2]}; {found[3]}"


def gaps_over_weight() -> str:
    return joined(above(row) for row in of("4", scheme="As-Q-only"))


def growth() -> str:
    ends = [row for row in read("5") if row["round"] == "10000"]
    return joined(f"{100 * float(row['growth_over_last_fifth']):.1f}" for row in ends) + " %"


def queues() -> str:
    ends = [row for row in read("5") if row["round"] == "10000"]
    return joined(number(row, ("total_queue", "low", "high"), 0) for row in ends)


def parting() -> str:
    """The first round in which a curve is 1 % above that of the smallest V."""
    curves: dict[float, dict[int, float]] = {}
    for row in read("5"):
        curves.setdefault(float(row["v"]), {})[int(row["round"])] = float(row["total_queue"])
    base, *others = (curves[v] for v in sorted(curves))
    parted = [next(t for t in sorted(curve) if t > 1 and curve[t] > 1.01 * base[t]) for curve in others]
    return joined(f"{t:,}" for t in parted)


def accuracy(figure: str, curves: Sequence[str] = BASELINES) -> str:
    """Points above CU-UCB (figure 9: above the smallest D_min) at the common time."""
    names = ("above_first", "above_first_low", "above_first_high")
    return joined(f"{curve} {number(of(figure, curve=curve, axis='common time')[0], names, 1, 100.0)}" for curve in curves)


def served_model(figure: str, curves: Sequence[str] = BASELINES) -> str:
    """Points of the averaged model above that of CU-UCB, over the last fifth of the common time, in pairs by seed."""
    names = ("above_first", "above_first_low", "above_first_high")
    rows = [of(f"{figure}_summary", axis="time", model="averaged", metric="end", curve=curve)[0] for curve in curves]
    return joined(f"{row['curve']} {number(row, names, 1, 100.0)}" for row in rows)


def even_mix() -> str:
    """Points of the even mix above the Dirichlet mix, averaged model, over the last fifth of time, in pairs by seed."""
    schemes = ("CU-UCB", *BASELINES)
    curves = {
        (figure, scheme): points_of(of(f"{figure}_seeds", curve=scheme, axis="time"), "test_accuracy")
        for figure in ("7", "8")
        for scheme in schemes
    }
    end = min(float(points.x[-1]) for of_seeds in curves.values() for points in of_seeds.values())
    found = []
    for scheme in schemes:
        even, uneven = (
            [100 * mean_between(points, LAST_FIFTH * end, end) for _, points in sorted(curves[figure, scheme].items())]
            for figure in ("7", "8")
        )
        apart = paired_difference("even", "Dirichlet", even, uneven)
        found.append(f"{apart.mean_difference:.1f} ({apart.low:.1f} … {apart.high:.1f})")
    return joined(found)


def as_accurate() -> str:
    found = (accuracy("6", ["As-Q-only"]), served_model("7", ["As-Q-only"]), served_model("8", ["As-Q-only"]))
    return "; ".join(one.removeprefix("As-Q-only ") for one in found)


def regret() -> str:
    rounds = {row["round"]: row for row in read("regret")}
    return joined(number(rounds[t], ("regret", "low", "high"), 4) for t in ("1000", "10000", "100000", "1000000"))


def _alike(text: str, value: object) -> bool:
    return float(text) == value if isinstance(value, float) else text == value


TABLES: dict[str, Callable[[], str]] = {
    "Figure 3a": gaps_over_d_min,
    "Figure 3b": worst_scheme,
    "Figure 3c": cost_over_d_min,
    "Figure 3d": least_samples,
    "Figure 4a": cost_over_weight,
    "Figure 4b": time_and_energy,
    "Figure 4c": gaps_over_weight,
    "Figure 5a": growth,
    "Figure 5b": queues,
    "Figure 5c": parting,
    "Figure 6": lambda: accuracy("6"),
    "Figure 7": lambda: served_model("7"),
    "Figure 8a": lambda: served_model("8"),
    "Figure 8b": even_mix,
    "Figure 9a": lambda: accuracy("9", ("min_mean_samples = 1.5", "min_mean_samples = 2.5")).replace(
        "min_mean_samples", "D_min"
    ),
    "Footnote 1a": as_accurate,
    "Theorem 4": regret,
}
