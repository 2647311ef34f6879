"""``fedtwin.plot``: one run or several, cost, queue, accuracy and declines against rounds, the clock or energy."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.experiments.specs.schemes import label
from fedtwin.figures.pictures import STYLE, require_a_place, require_matplotlib, save_picture
from fedtwin.given import path_or_none, wrong_kind
from fedtwin.runs import Run, open_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Against = Literal["round", "clock", "energy"]
Values = NDArray[np.float64]
X_LABELS: dict[Against, str] = {"round": "round t", "clock": "time on the run's clock (s)", "energy": "energy spent (J)"}
OF_EVALUATIONS: dict[Against, str] = {"round": "round", "clock": "clock_s", "energy": "energy_j"}
MOST_POINTS = 2000
WIDTH_INCHES, HEIGHT_INCHES = 5.0, 3.4
MOST_LEGEND_LINES = 12


@dataclass(frozen=True)
class Line:
    """The points of one run in one panel, as many as are drawn."""

    x: Values
    y: Values


@dataclass(frozen=True)
class Panel:
    """What is drawn, its axis, and how it is read from a run; None where the run has nothing of the kind."""

    y_label: str
    curve: Callable[[Run, Against], Line | None]


def plot(
    runs: Run | str | Path | Sequence[Run | str | Path],
    *,
    against: Against = "round",
    out: str | Path | None = None,
    overwrite: bool = False,
) -> "Figure":
    """Draws runs, opened or as folders, finished or not: mean cost so far, total queue, accuracy, declines so far.

    ``against`` is ``round``, ``clock`` or ``energy``. With ``out`` the picture is written there too, as PNG or SVG. Runs of any
    length are drawn by at most 2,000 points each.
    """
    require_matplotlib()
    if against not in tuple(X_LABELS):
        raise FedtwinError(f"against = {against!r} is unknown: choose one of {', '.join(X_LABELS)}.")
    picture_path = path_or_none("out", out)
    if picture_path is not None:
        require_a_place(picture_path, overwrite=overwrite)
    several = [runs] if isinstance(runs, Run | str | PathLike) else runs
    if not isinstance(several, Iterable):
        raise wrong_kind("runs", runs, "a run, its folder or several of them")
    several = list(several)
    if not several:
        raise FedtwinError("There is no run to draw: name one folder or more.")
    picture = draw_runs([run if isinstance(run, Run) else open_run(run) for run in several], against)
    if picture_path is not None:
        save_picture(picture, picture_path)
    return picture


def draw_runs(runs: Sequence[Run], against: Against) -> "Figure":
    """A panel for everything that some run has, a line for every run that has it."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = names_of(runs)
    found = [(panel, [panel.curve(run, against) for run in runs]) for panel in PANELS]
    drawn = [(panel, curves) for panel, curves in found if any(curve is not None for curve in curves)]
    columns, rows = min(2, len(drawn)), -(-len(drawn) // 2)
    with rc_context(STYLE):
        picture = Figure(figsize=(WIDTH_INCHES * columns, HEIGHT_INCHES * rows), layout="constrained")
        for place, (panel, curves) in enumerate(drawn, start=1):
            axes = picture.add_subplot(rows, columns, place)
            for k, (name, curve) in enumerate(zip(names, curves, strict=True)):
                if curve is not None:
                    axes.plot(curve.x, curve.y, color=f"C{k % 10}", label=name)
            axes.set(xlabel=X_LABELS[against], ylabel=panel.y_label)
        if len(runs) == 1:
            picture.suptitle(names[0])
        else:
            handles, labels = picture.axes[-1].get_legend_handles_labels()
            shown, more = labels[:MOST_LEGEND_LINES], len(labels) - MOST_LEGEND_LINES
            title = f"{more} more runs are drawn and not named" if more > 0 else None
            picture.legend(handles[: len(shown)], shown, title=title, loc="outside lower center", ncols=2, frameon=False)
    return picture


def names_of(runs: Sequence[Run]) -> list[str]:
    """Scheme and seed of every run; the folder too where that does not tell them apart."""
    plain = [f"{label(run.config, run.summary['scheme'])}, seed {run.config.run.seed}" for run in runs]
    names = [f"{name} ({run.path})" if plain.count(name) > 1 else name for name, run in zip(plain, runs, strict=True)]
    return [name if run.finished else f"{name}, unfinished" for name, run in zip(names, runs, strict=True)]


def thinned(x: Values, y: Values) -> Line:
    """At most so many points, evenly among all, the first and the last included."""
    if len(x) > MOST_POINTS:
        places = np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(np.int64)
        x, y = x[places], y[places]
    return Line(x, y)


def _column(table: pa.Table, name: str) -> Values:
    values: Values = table[name].to_numpy().astype(np.float64)
    return values


def _rows(run: Run) -> pa.Table:
    if run.rounds.num_rows == 0:
        raise FedtwinError(f"{str(run.path)!r} has no rounds yet: there is nothing to draw.")
    return run.rounds


def _x(run: Run, against: Against) -> Values:
    """Where every row stands; of energy, all that was spent up to it, its own included."""
    rows = _rows(run)
    if against != "energy":
        return _column(rows, OF_EVALUATIONS[against])
    return np.nancumsum(_column(rows, "compute_j") + _column(rows, "upload_j"))


def _mean_cost(run: Run, against: Against) -> Line | None:
    cost = _column(_rows(run), "cost")
    known = ~np.isnan(cost)
    if not known.any():
        return None
    return thinned(_x(run, against)[known], np.cumsum(cost[known]) / np.arange(1, known.sum() + 1))


def _total_queue(run: Run, against: Against) -> Line | None:
    return thinned(_x(run, against), _column(_rows(run), "total_queue"))


def _accuracy(run: Run, against: Against) -> Line | None:
    table = run.evaluations
    if table.num_rows == 0:
        return None
    if table["test_accuracy"].null_count:
        return None
    return thinned(_column(table, OF_EVALUATIONS[against]), _column(table, "test_accuracy"))


def _metric(run: Run, against: Against) -> Line | None:
    """Of a run that is not judged by its accuracy."""
    table = run.evaluations
    if table.num_rows == 0 or not table["test_accuracy"].null_count:
        return None
    return thinned(_column(table, OF_EVALUATIONS[against]), _column(table, "test_metric"))


def _declines(run: Run, against: Against) -> Line | None:
    return thinned(_x(run, against), np.cumsum(_column(_rows(run), "declined")))


PANELS: Sequence[Panel] = (
    Panel("mean cost Ω so far", _mean_cost),
    Panel("total queue Σ Q_n(t) (samples)", _total_queue),
    Panel("test accuracy", _accuracy),
    Panel("test metric", _metric),
    Panel("declines so far", _declines),
)
