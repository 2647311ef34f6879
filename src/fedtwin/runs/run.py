"""One way to read a run: ``open_run(folder)``. Nothing in the folder is written, and no code in it is run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.given import path_given, seconds_given, whole_number
from fedtwin.records.checksums import names_written, require_as_written
from fedtwin.records.files import CONFIG_NAME, SUMMARY_NAME, UNFINISHED_NAME
from fedtwin.runs.following import News, follow
from fedtwin.twin import Twin

MODEL_NAME, LEDGER_NAME, LATER_SEGMENTS = "model.safetensors", "ledger.jsonl", "ledger-*.jsonl"
TABLES = ("devices", "start", "rounds", "tasks", "evaluations", "refusals")


Within = tuple[str, float, float]


class Moment(NamedTuple):
    """A moment of a run. ``revision`` counts what has happened until then; ``queue_round`` is the t of Q_n(t) then: the round
    that is open, or the next one where the last one has been decided.
    """

    revision: int
    round: int
    seconds: float
    queue_round: int


class Run(ABC):
    """A run as its folder tells it: a simulation or a live run, finished, killed or still going on.

    Everything is read when it is first asked for, and then stays as it was read: open the run again, or ``follow`` it, to see
    what has been written since. Tables are Arrow tables. One that a run of this kind does not have is empty, with its columns.
    """

    is_live: ClassVar[bool] = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finished = (path / SUMMARY_NAME).exists()

    def __repr__(self) -> str:
        return f"<{'finished' if self.finished else 'unfinished'} run in {str(self.path)!r}>"

    @cached_property
    def config(self) -> Config:
        """All settings of the run."""
        if self.finished or (self.path / UNFINISHED_NAME).exists():
            require_as_written(self.path, CONFIG_NAME)
        return load_config(self.path / CONFIG_NAME)

    @property
    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """``summary.json``; of a run that has not ended, the same over what is there so far, with ``"unfinished": True``."""

    @property
    @abstractmethod
    def devices(self) -> pa.Table:
        """One row per device."""

    @property
    @abstractmethod
    def start(self) -> pa.Table:
        """The first dispatches, round 0; empty in synchronous mode."""

    @property
    @abstractmethod
    def rounds(self) -> pa.Table:
        """One row per decision."""

    @property
    @abstractmethod
    def tasks(self) -> pa.Table:
        """Every task of a live run beside its prediction; empty for a simulation."""

    @property
    @abstractmethod
    def evaluations(self) -> pa.Table:
        """The model on the test set; empty where none is trained."""

    @property
    @abstractmethod
    def refusals(self) -> pa.Table:
        """What was refused."""

    def to_pandas(self, table: str = "rounds") -> Any:
        """One of the tables as a pandas DataFrame (needs pandas)."""
        if table not in TABLES:
            raise FedtwinError(f"to_pandas({table!r}): a run has no such table, it has {', '.join(TABLES)}.")
        return getattr(self, table).to_pandas()

    @cached_property
    def weights(self) -> dict[str, NDArray[Any]]:
        """The model by the names of its tensors, as NumPy arrays."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        data = self.model_bytes()
        try:
            return dict(load(data))
        except (ValueError, KeyError, SafetensorError) as error:
            raise self._unreadable_model(error) from None

    def model_bytes(self) -> bytes:
        """The model's file, checked against what was written."""
        path = self._model_path()
        if not path.exists() and not (self.finished and MODEL_NAME in names_written(self.path)):
            raise FedtwinError(f"{str(self.path)!r} has no model: it trains none, or has not ended.")
        if self.finished and path.name == MODEL_NAME:
            require_as_written(self.path, MODEL_NAME)
        try:
            return plain_file(path).read_bytes()
        except OSError as error:
            raise self._unreadable_model(error) from None

    def _unreadable_model(self, error: Exception) -> FedtwinError:
        return FedtwinError(f"{str(self._model_path())!r} cannot be read: {str(error).rstrip('.')}.")

    def _model_path(self) -> Path:
        return self.path / MODEL_NAME

    def twin(self, *, round: int | None = None, seconds: float | None = None, revision: int | None = None) -> Twin:
        """The fleet as the server knew it at a moment, exactly: what a replay of the run up to there ends with.

        ``round=t``: when round t has been opened, with the upload that opened it, and nobody has been asked yet: what the
        policy saw. Round 0 is before everything. ``seconds=s``: after all that happened up to s on the clock of the records
        (``clock_s``), and at s itself. ``revision=k``: as ``moment`` counts. Without any: after all that is written down.
        """
        return self._twin_at(self._revision(round, seconds, revision))

    def moment(self, *, round: int | None = None, seconds: float | None = None, revision: int | None = None) -> Moment:
        """Which revision, round and second that is; a moment is named as for ``twin``."""
        found = self._moment_of(self._revision(round, seconds, revision))
        return found if seconds is None else found._replace(seconds=seconds)

    def drained(self, *, round: int | None = None, revision: int | None = None) -> frozenset[str]:  # noqa: ARG002
        """The names of those who were given no task then, by an order; nobody in a simulation. By default now."""
        return frozenset()

    def _revision(self, round_: int | None, seconds: float | None, revision: int | None) -> int:
        if sum(named is not None for named in (round_, seconds, revision)) > 1:
            raise FedtwinError("twin(round=…, seconds=…, revision=…): a moment is named by one of them.")
        if round_ is not None:
            number = whole_number(round_)
            if number is None:
                raise FedtwinError(f"twin(round={round_!r}): a round is a whole number; a time is twin(seconds=…).")
            return self._revision_of_round(number)
        if seconds is not None:
            return self._revision_of_second(seconds_given("twin(seconds)", seconds))
        first, last = self._revisions()
        if revision is None:
            return last
        number = whole_number(revision)
        if number is None or not first <= number <= last:
            raise FedtwinError(f"twin(revision={revision!r}): {str(self.path)!r} has the revisions {first} to {last}.")
        return number

    def at_rest(self) -> "Run":
        """The run as it stands, with tables that may be asked for while another thread reads on in its ledger."""
        return self

    def follow(self, *, every_s: float = 0.5, timeout_s: float | None = None) -> Iterator[News]:
        """What is written, as it is written: first all that is there, then what is new, until the run is finished.

        It looks every ``every_s``, and ends early if nothing new has come for ``timeout_s``: a run that was killed is never
        finished. Leaving the loop stops it too.
        """
        return follow(self.reporter(), every_s=every_s, timeout_s=timeout_s)

    @abstractmethod
    def reporter(self) -> Callable[[], News]:
        """A function that gives the next news whenever it is called, which may be none: ``follow`` for who waits otherwise."""

    @abstractmethod
    def batches(self, *names: str, within: Within | None = None) -> Iterator[dict[str, NDArray[Any]]]:
        """Some columns of ``rounds`` as NumPy arrays, piece by piece, in order, without the memory of all of them.

        ``within`` is a column with a least and a most: pieces that have nothing between them may be left out.
        """

    def columns(self, *names: str, within: Within | None = None) -> dict[str, NDArray[Any]]:
        """The same in one piece."""
        pieces = list(self.batches(*names, within=within))
        if not pieces:
            return {name: self.start[name].slice(0, 0).to_numpy() for name in names}
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}

    @abstractmethod
    def _revisions(self) -> tuple[int, int]:
        """The first and the last there is."""

    @abstractmethod
    def _revision_of_round(self, round_: int) -> int: ...

    @abstractmethod
    def _revision_of_second(self, seconds: float) -> int: ...

    @abstractmethod
    def _twin_at(self, revision: int) -> Twin: ...

    @abstractmethod
    def _moment_of(self, revision: int) -> Moment: ...

    def _no_such_round(self, round_: int, last: int) -> FedtwinError:
        return FedtwinError(f"twin(round={round_}): {str(self.path)!r} has the rounds 0 to {last}.")

    def _no_such_second(self, seconds: float, last_s: float) -> FedtwinError:
        return FedtwinError(f"twin(seconds={seconds!r}): {str(self.path)!r} goes from 0 to {last_s!r} s.")


def open_run(path: str | Path) -> Run:
    """The run in a folder. Only what is asked of it is read."""
    folder = path_given("folder", path)
    if not (folder / CONFIG_NAME).is_file():
        raise FedtwinError(f"{str(folder)!r} is not the folder of a run: it has no {CONFIG_NAME}.")
    if (folder / LEDGER_NAME).exists() or any(folder.glob(LATER_SEGMENTS)):
        from fedtwin.runs.live import LiveRunFolder

        return LiveRunFolder(folder)
    if not any((folder / name).exists() for name in (SUMMARY_NAME, UNFINISHED_NAME)):
        raise FedtwinError(f"{str(folder)!r} is not the folder of a run: no run has begun beside its {CONFIG_NAME}.")
    from fedtwin.runs.simulated import SimulatedRun

    return SimulatedRun(folder)
