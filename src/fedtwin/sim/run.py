"""``simulate(config)``: one run, its summary and its records."""

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fedtwin.config import Config, config_hash, identity_of
from fedtwin.errors import CannotCompileError, EnginesDifferError, FedtwinError, FedtwinWarning, UnfitCheckpointError
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records import Row, RunFolder, Summary, Tally, rounds_schema, to_table
from fedtwin.records.folder import ROWS_PER_PART, clear_rounds, read_unfinished
from fedtwin.records.summary import run_summary
from fedtwin.records.writing import telling_of_failed_writes
from fedtwin.sim import asynchronous, synchronous
from fedtwin.sim.compiled import engine_for, run_compiled
from fedtwin.sim.engine import Engine
from fedtwin.sim.limits import sentence_of_declines
from fedtwin.sim.purity import Purity
from fedtwin.sim.result import Result, Series, devices_table
from fedtwin.world.fleet import fleet_columns, largest_min_mean_samples

if TYPE_CHECKING:
    from fedtwin.learning.executors import Executor
    from fedtwin.learning.learner import Learner, LearnerState

CHECKPOINT_EVERY_S = 30.0
CHECKPOINT_NAME = "checkpoint.safetensors"


class _Recorder:
    """Takes every row of a run: sums it up, writes it down, samples the series, moves the progress bar."""

    def __init__(
        self,
        *,
        folder: RunFolder | None,
        schema: pa.Schema | None,
        checkpoints: Sequence[int],
        progress: Callable[[int], None] | None,
    ) -> None:
        self.tally = Tally()
        self.series = Series()
        self._folder, self._schema, self._progress = folder, schema, progress
        self._rows: list[Row] = []
        self._tables: list[pa.Table] = []
        self._checkpoints = sorted(set(checkpoints), reverse=True)

    def add(self, row: Row, charged_s: float) -> None:
        self.tally.add(row, charged_s)
        if self._folder is not None:
            self._folder.add(row)
        elif self._schema is not None:
            self._rows.append(row)
            if len(self._rows) == ROWS_PER_PART:
                self._pack(self._schema)
        while self._checkpoints and row.round >= self._checkpoints[-1] and not row.declined:
            self.series.rounds.append(self._checkpoints.pop())
            self.series.mean_cost.append(self.tally.cost_sum / self.tally.selections)
            self.series.total_queue.append(row.total_queue)
        if self._progress is not None:
            self._progress(self.tally.selections)

    def table(self) -> pa.Table | None:
        """The rows kept in memory; None if they went to a folder or nowhere."""
        if self._schema is None or self._folder is not None:
            return None
        self._pack(self._schema)
        return pa.concat_tables(self._tables)

    def _pack(self, schema: pa.Schema) -> None:
        self._tables.append(to_table(self._rows, schema))
        self._rows.clear()


class _Checkpoints:
    """Between rounds: lets a resumed learner go on where it stopped, and writes a checkpoint now and then."""

    def __init__(self, engine: Engine, folder: RunFolder | None, every_s: float, name: str) -> None:
        self._engine, self._learner, self._folder, self._every_s = engine, engine.learner, folder, every_s
        self._hash = name
        self._written_at = time.monotonic()

    def pause(self) -> None:
        if self._learner is None:
            return
        self._learner.go_on(self._engine.coordinator.round)
        if self._folder is not None and not self._learner.replaying and time.monotonic() - self._written_at >= self._every_s:
            from safetensors import SafetensorError

            from fedtwin.learning.checkpoint import write_checkpoint

            state = self._learner.state(self._engine.coordinator.round)
            self._folder.save()
            self._folder.write_evaluations(state.evaluations)
            self._folder.write_refusals(state.refusals)
            with telling_of_failed_writes(self._folder.path, SafetensorError):
                write_checkpoint(self._folder.path, state, self._hash)
            self._written_at = time.monotonic()


def simulate(
    config: Config,
    *,
    out: str | Path | None = None,
    trace: bool = False,
    records: bool = True,
    checkpoints: Sequence[int] = (),
    progress: Callable[[int], None] | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    executor: "Executor | None" = None,
) -> Result:
    """Runs the configuration. Records go to the folder ``out``, or stay in the result, or (``records=False``) nowhere."""
    if sentence := impossible_min_mean_samples(config):
        warnings.warn(sentence, FedtwinWarning, stacklevel=2)
    result = _run(
        config, Path(out) if out is not None else None, None,
        trace=trace, records=records, checkpoints=checkpoints, progress=progress, checkpoint_every_s=checkpoint_every_s,
        executor=executor,
    )  # fmt: skip
    if sentence := sentence_of_declines(config, result.summary):
        warnings.warn(sentence, FedtwinWarning, stacklevel=2)
    return result


def resume(
    folder: str | Path, *, progress: Callable[[int], None] | None = None, checkpoint_every_s: float = CHECKPOINT_EVERY_S
) -> Result:
    """Goes on with an unfinished run: its schedule is replayed, its training continues from the last checkpoint.

    Without one that can be used the training is done again.
    """
    path = Path(folder)
    config, trace = read_unfinished(path)
    state = None
    if config.learning is not None:
        from fedtwin.learning.checkpoint import read_checkpoint

        state = read_checkpoint(path, config_hash(config))

    def go_on(state: "LearnerState | None") -> Result:
        return _run(
            config, path, _Resumed(state),
            trace=trace, records=True, checkpoints=(), progress=progress, checkpoint_every_s=checkpoint_every_s,
        )  # fmt: skip

    try:
        result = go_on(state)
    except UnfitCheckpointError as error:
        warnings.warn(f"{str(error).rstrip('.')}; the training is done again from the start.", FedtwinWarning, stacklevel=2)
        result = go_on(None)
    if sentence := sentence_of_declines(config, result.summary):
        warnings.warn(sentence, FedtwinWarning, stacklevel=2)
    return result


@dataclass(frozen=True)
class _Resumed:
    """A run that was begun before; its learner's last checkpoint, if it wrote one."""

    state: "LearnerState | None"


def _run(
    config: Config, out: Path | None, resumed: _Resumed | None, *, trace: bool, records: bool, checkpoints: Sequence[int],
    progress: Callable[[int], None] | None, checkpoint_every_s: float, executor: "Executor | None" = None,
) -> Result:  # fmt: skip
    records = records and config.run.records
    if trace and not config.run.records:
        raise FedtwinError("run.records = false keeps no rounds, and a trace is a part of them: leave out one of the two.")
    if engine_for(config, trace=trace) == "compiled":
        try:
            return run_compiled(
                config, out, resume=resumed is not None, records=records, checkpoints=checkpoints, progress=progress
            )
        except CannotCompileError as error:
            if config.run.engine == "compiled":
                raise
            resumed = _Resumed(None) if out is not None else None
            if isinstance(error, EnginesDifferError):
                warnings.warn(f"{error} It starts again that way now.", FedtwinWarning, stacklevel=3)
                if out is not None:
                    clear_rounds(out)
    identity = identity_of(config)
    engine = Engine(config, trace=trace)
    devices = devices_table(fleet_columns(config), np.array(engine.tie_ranks))
    learner = engine.learner = _make_learner(config, engine, resumed, executor)
    folder: RunFolder | None = None
    try:
        if out is not None:
            folder = RunFolder(out, config, devices, name=identity.hash, trace=trace, resume=resumed is not None)
        schema = rounds_schema(trace=trace, learning=learner is not None) if records else None
        recorder = _Recorder(folder=folder, schema=schema, checkpoints=checkpoints, progress=progress)
        checkpoint, purity = _Checkpoints(engine, folder, checkpoint_every_s, identity.hash), Purity(config, identity)

        def pause() -> None:
            purity.look(engine.coordinator.round)
            checkpoint.pause()

        try:
            if config.run.mode == "async":
                asynchronous.run(engine, recorder.add, pause, on_start=folder.write_start if folder else None)
            else:
                synchronous.run(engine, recorder.add, pause)
            purity.require()
            evaluations = _evaluate_at_the_end(engine, pause)
        except BaseException:
            if folder is not None:
                with suppress(FedtwinError):  # the error that ended the run is the one to tell
                    folder.save()
                    if learner is not None:
                        folder.write_refusals(learner.refusals)
            raise
        summary = _summary(engine, recorder.tally)
        if learner is not None:
            last, refused = evaluations[-1], len(learner.refusals)
            summary = replace(summary, test_loss=last.test_loss, test_accuracy=last.test_accuracy, refusals=refused)
        if folder is not None:
            if learner is not None:
                _write_learned(folder, learner, evaluations)
            folder.finish(run_summary(config, summary, identity))
            (folder.path / CHECKPOINT_NAME).unlink(missing_ok=True)
    finally:
        if folder is not None:
            folder.release()
        if learner is not None:
            learner.close()
    return Result(config, summary, devices, recorder.series, evaluations, out, identity, recorder.table())


def _make_learner(config: Config, engine: Engine, resumed: _Resumed | None, executor: "Executor | None") -> "Learner | None":
    if config.learning is None:
        return None
    try:
        from fedtwin.learning.learner import Learner
    except ImportError as error:
        raise FedtwinError(f"[learning] needs PyTorch and safetensors ({error}): pip install 'fedtwin[learn]'.") from None
    samples = [device.samples for device in engine.world.fleet]
    return Learner(config, samples, resumed.state if resumed else None, executor)


def _evaluate_at_the_end(engine: Engine, pause: Callable[[], None]) -> list[Evaluation]:
    if engine.learner is None:
        return []
    pause()
    engine.learner.evaluate_at_the_end(engine.clock_s, engine.coordinator.round)
    return engine.learner.evaluations()


def _write_learned(folder: RunFolder, learner: "Learner", evaluations: list[Evaluation]) -> None:
    from safetensors import SafetensorError

    from fedtwin.learning.layout import save_weights

    folder.write_evaluations(evaluations)
    folder.write_refusals(learner.refusals)
    with telling_of_failed_writes(folder.path, SafetensorError):
        save_weights(folder.path / "model.safetensors", learner.layout, learner.model)


def impossible_min_mean_samples(config: Config) -> str | None:
    """C1 asks for more than one selection a round can give: legal, and worth one sentence."""
    asked = config.objective.min_mean_samples
    largest = largest_min_mean_samples(config, fleet_columns(config).samples.tolist())
    if asked <= largest:
        return None
    return (
        f"objective.min_mean_samples = {asked:g} cannot be met by any policy on this fleet: "
        f"the largest value that might be is {largest:.4g}."
    )


def _summary(engine: Engine, tally: Tally) -> Summary:
    coordinator = engine.coordinator
    return tally.summary(
        virtual_time_s=engine.clock_s,
        rounds=coordinator.round,
        trained=[device.selections * device.samples.value for device in coordinator.twin.devices],
        total_queue=coordinator.total_queue_at_the_end(),
    )
