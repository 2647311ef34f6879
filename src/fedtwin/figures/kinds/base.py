"""What a kind of figure is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtwin.config import Config
from fedtwin.experiments.batches.job import Outcome
from fedtwin.experiments.specs.figure import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TableRow = dict[str, Any]


class Curve(NamedTuple):
    """One scheme at one value of the swept setting (None where nothing is swept): a run per seed.

    ``config`` is that of the first seed.
    """

    scheme: str
    value: float | None
    config: Config
    runs: list[Outcome]


@dataclass(frozen=True)
class Kind:
    """From curves to the rows of the CSV, and from those to the picture.

    ``per_seed`` gives the rows of a second CSV, of single runs, and ``summary`` makes a third of that one alone.
    ``stationary`` asks for s* of every run's fleet, ``queues`` for the longest queue, ``constants`` for those of Theorem 1; a
    kind may need several schemes.
    """

    rows: Callable[[Experiment, Sequence[Curve]], list[TableRow]]
    draw: Callable[["Figure", Experiment, list[TableRow]], None]
    stationary: bool = False
    queues: bool = False
    constants: bool = False
    least_schemes: int = 1
    per_seed: Callable[[Experiment, Sequence[Curve]], list[TableRow]] | None = None
    summary: Callable[[Experiment, list[TableRow]], list[TableRow]] | None = None


def swept_setting(experiment: Experiment) -> str:
    """The name of the swept setting, without its section, as the column of its values is called."""
    return experiment.sweep.key.partition(".")[2] if experiment.sweep else "value"


def naming_the_scheme(experiment: Experiment, scheme: str) -> TableRow:
    """A first column with the scheme, where an experiment has several."""
    return {"scheme": scheme} if len(experiment.schemes) > 1 else {}
