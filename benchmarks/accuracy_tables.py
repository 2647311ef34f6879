"""The tables behind figures 6 to 9 in docs/results.md, in percent, from the CSV of a figure.

For every curve, at the largest time and energy that all runs reached: the accuracy there, its paired difference from the
first curve with the 95 % interval, and the mean accuracy over the last fifth of the curve up to there, which is steadier.

    python -m benchmarks.accuracy_tables docs/results/figure_7.csv
"""

import csv
import sys
from pathlib import Path

LAST_FIFTH = 0.8
DIFFERENCE = ("above_first", "above_first_low", "above_first_high")

Row = dict[str, str]


def mean_over_the_last_fifth(rows: list[Row], curve: str, axis: str, common: float) -> float:
    """Of the model that is served."""
    points = [(float(row["x"]), float(row["test_accuracy"])) for row in rows if (row["curve"], row["axis"]) == (curve, axis)]
    last = [accuracy for x, accuracy in points if LAST_FIFTH * common <= x <= common]
    return sum(last) / len(last)


def main() -> None:
    for path in sys.argv[1:]:
        with Path(path).open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        for axis in ("time", "energy"):
            for row in (row for row in rows if row["axis"] == f"common {axis}"):
                common = float(row["x"])
                mean, low, high = (100 * float(row[name]) for name in DIFFERENCE)
                last = 100 * mean_over_the_last_fifth(rows, row["curve"], axis, common)
                end = f"at {common:.0f}: {100 * float(row['test_accuracy']):.1f}, {mean:+.1f} ({low:.1f} … {high:.1f})"
                print(f"{Path(path).stem}  {axis:6}  {row['curve']:22}  {end}  last fifth: {last:.1f}")


if __name__ == "__main__":
    main()
