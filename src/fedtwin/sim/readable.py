"""One run by the readable engine, with the training of a model where one is asked for."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedtwin.config import Config, identity_of
from fedtwin.errors import FedtwinError
from fedtwin.learning.evaluation import MEASURED, Evaluation
from fedtwin.records import RunFolder, Summary, rounds_schema
from fedtwin.records.summary import run_summary
from fedtwin.sim import asynchronous, synchronous
from fedtwin.sim.callbacks import Listeners
from fedtwin.sim.elsewhere import require_the_same_elsewhere
from fedtwin.sim.engine import Engine
from fedtwin.sim.recorder import Recorder
from fedtwin.sim.result import Result, devices_table
from fedtwin.sim.saving import CHECKPOINT_NAME, Checkpoints, write_learned
from fedtwin.sim.wanted import Resumed, Wanted
from fedtwin.usercode import Purity
from fedtwin.world.fleet import fleet_columns

if TYPE_CHECKING:
    from fedtwin.learning.learner import Learner


def run_readable(config: Config, wanted: Wanted, resumed: Resumed | None) -> Result:
    """The whole run; whatever ends it early leaves a folder from which it can be resumed."""
    identity, trace, listeners = identity_of(config), wanted.trace, wanted.listeners
    require_the_same_elsewhere(config)
    engine = Engine(config, trace=trace)
    devices = devices_table(fleet_columns(config), np.array(engine.tie_ranks))
    learner = engine.learner = _make_learner(config, engine, wanted, resumed)
    folder: RunFolder | None = None
    try:
        if wanted.out is not None:
            folder = RunFolder(wanted.out, config, devices, name=identity.hash, trace=trace, resume=resumed is not None)
        recorder = Recorder(
            folder=folder,
            schema=rounds_schema(trace=trace, learning=learner is not None, timeout=config.run.sync_timeout_s is not None)
            if wanted.records
            else None,
            checkpoints=wanted.checkpoints,
            progress=wanted.progress,
            listeners=listeners,
        )
        checkpoints = Checkpoints(engine, folder, wanted.checkpoint_every_s, identity.hash)
        questions = [
            *engine.coordinator.questions,
            *engine.world.questions,
            *(learner.questions if learner is not None else ()),
        ]
        purity = Purity(config.own_code, config.code.folder, identity.code, questions=questions)

        def pause() -> None:
            purity.look(engine.coordinator.round)
            checkpoints.pause()
            _tell_evaluations(learner, listeners)

        try:
            if config.run.mode == "async":
                asynchronous.run(engine, recorder.add, pause, on_start=folder.write_start if folder else None)
            else:
                synchronous.run(engine, recorder.add, pause)
            purity.require()
            evaluations = _evaluate_at_the_end(engine, pause)
            listeners.tell_evaluations(evaluations)
        except BaseException:
            if folder is not None:
                with suppress(FedtwinError):  # the error that ended the run is the one to tell
                    folder.save()
                    if learner is not None:
                        folder.write_refusals(learner.refusals)
            raise
        summary = _summary(engine, recorder, evaluations)
        if folder is not None:
            if learner is not None:
                write_learned(folder, learner, evaluations, config, identity.hash)
            folder.finish(run_summary(config, summary, identity))
            (folder.path / CHECKPOINT_NAME).unlink(missing_ok=True)
        weights = learner.weights() if learner is not None else {}
    finally:
        if folder is not None:
            folder.release()
        if learner is not None:
            learner.close()
    return Result(
        config, summary, devices, recorder.series, evaluations, wanted.out, identity, weights, _rounds=recorder.table()
    )


def _make_learner(config: Config, engine: Engine, wanted: Wanted, resumed: Resumed | None) -> "Learner | None":
    if config.learning is None:
        return None
    try:
        from fedtwin.learning.learner import Learner
    except ImportError as error:
        raise FedtwinError(f"[learning] needs PyTorch ({error}): pip install 'fedtwin[learn]'.") from None
    samples = [device.samples for device in engine.world.fleet]
    least = [device.least_samples for device in engine.world.fleet]
    return Learner(config, samples, resumed.state if resumed else None, wanted.executor, least_samples=least)


def _tell_evaluations(learner: "Learner | None", listeners: Listeners) -> None:
    """Only where somebody listens are they waited for."""
    if learner is not None and listeners.of_evaluations and not learner.replaying:
        listeners.tell_evaluations(learner.evaluations())


def _evaluate_at_the_end(engine: Engine, pause: Callable[[], None]) -> list[Evaluation]:
    if engine.learner is None:
        return []
    pause()
    engine.learner.evaluate_at_the_end(engine.clock_s, engine.coordinator.round)
    return engine.learner.evaluations()


def _summary(engine: Engine, recorder: Recorder, evaluations: list[Evaluation]) -> Summary:
    coordinator = engine.coordinator
    summary = recorder.tally.summary(
        virtual_time_s=engine.clock_s,
        rounds=coordinator.round,
        trained=[float(recorder.trained[device]) for device in range(len(engine.world.fleet))],
        total_queue=coordinator.total_queue_at_the_end(),
        timeout=engine.config.run.sync_timeout_s is not None,
    )
    if engine.learner is None:
        return summary
    last, refused = evaluations[-1], len(engine.learner.refusals)
    measured = {name: getattr(last, name) for name in MEASURED}
    return replace(summary, **measured, refusals=refused)
