"""``fedtwin.figure``: the paper's figures from the committed experiments, as rows, pictures and files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.allowance import Allowance
from fedtwin.experiments.batches.backends import open_backend
from fedtwin.experiments.batches.told import run_told
from fedtwin.experiments.specs.figure import Experiment, Profile, load_experiment
from fedtwin.experiments.specs.schemes import chosen_schemes, only_names
from fedtwin.experiments.telling import Count, Say
from fedtwin.figures.kinds import TableRow
from fedtwin.figures.pictures import require_matplotlib
from fedtwin.figures.save import draw_figure, figure_paths, save_figure
from fedtwin.figures.table import figure_jobs, figure_tables
from fedtwin.given import path_or_none, settings_given

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class Figure:
    """A figure: the rows behind it, what they rest on, and the files it was written to, if any.

    Figures of accuracy have ``tables["seeds"]``, every evaluation of every run, and ``tables["summary"]``, made of it.
    """

    experiment: Experiment
    rows: list[TableRow]
    note: str
    paths: tuple[Path, ...] = ()
    tables: dict[str, list[TableRow]] = field(default_factory=dict)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame (needs pandas)."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def draw(self) -> "Picture":
        """The picture, as a ``matplotlib.figure.Figure``."""
        return draw_figure(self.experiment, self.note, self.rows)


def figure(
    name: str,
    *,
    profile: Profile = "full",
    schemes: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    ray: str | None = None,
    progress: bool | Count = False,
    minutes: float | None = None,
    runs: int | None = None,
) -> Figure:
    """One figure of the paper, by its name; ``quick`` has fewer seeds and rounds.

    Names are ``3`` to ``9``, ``6-energy`` to ``9-energy`` (λ_e = 0.5), ``regret``, ``decomposition``, ``queues``, ``theorem1``,
    ``digits`` and ``headline``.

    Other ``schemes`` (names, or ``module:attribute`` of a policy of one's own) and ``{"section.key": value}`` in ``settings``
    make another figure, under another name. With ``out`` PNG, SVG and CSV are written there, and an interrupted figure goes
    on where it stopped, on another machine too if the folder is copied there. ``progress`` is True for a bar, or a function
    that hears how many more runs are done. No run begins after ``minutes``, and no more than ``runs`` of them in this call:
    a figure that is not finished then is a ``NotFinishedError``, and the same call goes on.
    """
    made = figures(
        [name], profile=profile, schemes=schemes, settings=settings, out=out, overwrite=overwrite,
        workers=workers, ray=ray, progress=progress, minutes=minutes, runs=runs,
    )  # fmt: skip
    return next(iter(list(made)))


def figures(
    names: Sequence[str],
    *,
    profile: Profile = "full",
    schemes: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    ray: str | None = None,
    progress: bool | Count = False,
    say: Say | None = None,
    minutes: float | None = None,
    runs: int | None = None,
) -> Iterator[Figure]:
    """Several figures, each as soon as it is made. All is checked before the first run. Limits are for all together."""
    if profile not in ("quick", "full"):
        raise FedtwinError(f"profile = {profile!r} is unknown: choose quick or full.")
    folder = path_or_none("out", out)
    allowance = Allowance(minutes, runs)
    if allowance.limits and folder is None:
        raise FedtwinError("minutes and runs need a folder to go on from: say out=DIR.")
    settings = settings_given("settings", settings)
    experiments = [_experiment(str(name), schemes, settings) for name in names]
    if folder is not None:
        require_matplotlib()
        _require_a_place(folder, experiments, overwrite=overwrite)
    jobs = [figure_jobs(experiment, profile) for experiment in experiments]
    with open_backend(workers, ray) as backend:
        for experiment, its_jobs in zip(experiments, jobs, strict=True):
            journal = folder / f".figure_{experiment.figure}.{profile}.jsonl" if folder is not None else None
            outcomes = run_told(
                its_jobs, of="figure", bar=f"figure {experiment.figure}",
                backend=backend, journal=journal, progress=progress, say=say, allowance=allowance,
            )  # fmt: skip
            tables, note = figure_tables(experiment, profile, outcomes), _note(experiment, profile)
            paths = save_figure(folder, experiment, note, tables) if folder is not None else []
            if journal is not None:
                journal.unlink(missing_ok=True)
            yield Figure(experiment, tables.rows, note, tuple(paths), tables.others)


def _experiment(name: str, schemes: str | Sequence[str] | None, settings: Mapping[str, Any] | None) -> Experiment:
    experiment = load_experiment(name)
    return experiment.with_changes(only_names(chosen_schemes(schemes, experiment.schemes), "A figure"), settings)


def _require_a_place(folder: Path, experiments: Sequence[Experiment], *, overwrite: bool) -> None:
    there = [path for experiment in experiments for path in figure_paths(folder, experiment) if path.exists()]
    if there and not overwrite:
        raise FedtwinError(f"{str(there[0])!r} exists already: name another folder, or say --overwrite (overwrite=True).")


def _note(experiment: Experiment, profile: Profile) -> str:
    effort = experiment.profiles[profile]
    changed = f"; changed: {experiment.changed}" if experiment.changed else ""
    over = f"mean and 95 % interval over {effort.seeds} seeds" if effort.seeds > 1 else "one seed"
    return f"({over}, {effort.rounds:,} rounds{changed})"
