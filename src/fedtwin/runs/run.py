"""One way to read a run: ``open_run(folder)``. Nothing in the folder is written, and no code in it is run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

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


class Run(ABC):
    """A run as its folder tells it: a simulation or a live run, finished, killed or still going on.

    Everything is read when it is first asked for, and then stays as it was read: open the run again, or ``follow`` it, to see
    what has been written since. Tables are Arrow tables. One that a run of this kind does not have is empty, with its columns.
    """

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
        path = self._model_path()
        if not path.exists() and not (self.finished and MODEL_NAME in names_written(self.path)):
            raise FedtwinError(f"{str(self.path)!r} has no model: it trains none, or has not ended.")
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
        except ImportError as error:
            raise FedtwinError(f"The weights of a run need safetensors ({error}): pip install 'fedtwin[learn]'.") from None
        if self.finished and path.name == MODEL_NAME:
            require_as_written(self.path, MODEL_NAME)
        try:
            return dict(load_file(plain_file(path)))
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise FedtwinError(f"{str(path)!r} cannot be read: {str(error).rstrip('.')}.") from None

    def _model_path(self) -> Path:
        return self.path / MODEL_NAME

    def twin(self, *, round: int | None = None, seconds: float | None = None) -> Twin:
        """The fleet as the server knew it at a moment, exactly: what a replay of the run up to there ends with.

        ``round=t``: when round t has been opened, with the upload that opened it, and nobody has been asked yet: what the
        policy saw. Round 0 is before everything. ``seconds=s``: after all that happened up to s on the clock of the records
        (``clock_s``), and at s itself. Without either: after everything that is written down.
        """
        if round is not None and seconds is not None:
            raise FedtwinError("twin(round=…, seconds=…): a moment is named by one of the two.")
        if round is not None:
            number = whole_number(round)
            if number is None:
                raise FedtwinError(f"twin(round={round!r}): a round is a whole number; a time is twin(seconds=…).")
            return self._twin_at_round(number)
        if seconds is None:
            return self._last_twin()
        return self._twin_at_seconds(seconds_given("twin(seconds)", seconds))

    def follow(self, *, every_s: float = 0.5, timeout_s: float | None = None) -> Iterator[News]:
        """What is written, as it is written: first all that is there, then what is new, until the run is finished.

        It looks every ``every_s``, and ends early if nothing new has come for ``timeout_s``: a run that was killed is never
        finished. Leaving the loop stops it too.
        """
        return follow(self._reporter(), every_s=every_s, timeout_s=timeout_s)

    @abstractmethod
    def _reporter(self) -> Callable[[], News]:
        """Gives the next news, which may be none."""

    @abstractmethod
    def _last_twin(self) -> Twin: ...

    @abstractmethod
    def _twin_at_round(self, round_: int) -> Twin: ...

    @abstractmethod
    def _twin_at_seconds(self, seconds: float) -> Twin: ...

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
