"""``simulate(config)``: one run, its summary and its records; ``resume``: an unfinished one goes on."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtwin.config import Config, ConfigLike, config_hash, without_effect
from fedtwin.errors import CannotCompileError, EnginesDifferError, FedtwinError, FedtwinWarning, UnfitCheckpointError
from fedtwin.given import function_or_none, object_with, path_given, path_or_none, rounds_given, seconds_given, truth_given
from fedtwin.learning.charges import charged
from fedtwin.policies import knobs_of
from fedtwin.records.folder import clear_rounds
from fedtwin.records.reading import read_unfinished
from fedtwin.sim.callbacks import Listeners, OnEnd, OnEvaluation, OnRound
from fedtwin.sim.compiled import engine_for, run_compiled
from fedtwin.sim.given import configured
from fedtwin.sim.limits import sentence_of_declines
from fedtwin.sim.readable import run_readable
from fedtwin.sim.result import Result
from fedtwin.sim.wanted import CHECKPOINT_EVERY_S, Resumed, Wanted
from fedtwin.world.fleet import fleet_columns, largest_min_mean_samples
from fedtwin.world.parts import parts_of

if TYPE_CHECKING:
    from fedtwin.learning.aggregation import Aggregator
    from fedtwin.learning.executors import Executor
    from fedtwin.policies import OraclePolicy, Policy


def simulate(
    config: ConfigLike = None,
    *,
    policy: "str | Policy | OraclePolicy | None" = None,
    model: "str | Callable[..., Any] | None" = None,
    aggregation: "str | Aggregator | None" = None,
    out: str | Path | None = None,
    trace: bool = False,
    records: bool = True,
    checkpoints: Sequence[int] = (),
    progress: Callable[[int], None] | None = None,
    callbacks: Any = (),
    on_round: OnRound | None = None,
    on_evaluation: OnEvaluation | None = None,
    on_end: OnEnd | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    executor: "Executor | None" = None,
) -> Result:
    """Plays one run and returns its ``Result``. The same settings, seed and code give the same numbers, to the last bit.

    :param config: a ``Config``, a dictionary of settings (``{"run.rounds": 500}`` or ``{"run": {"rounds": 500}}``), the path of
        a TOML file, or nothing for the defaults.
    :param policy: who is selected, in place of the configuration's: the name of a policy or scheme, ``module:attribute``, or a
        ``Policy`` object (docs/own_code.md).
    :param model: the network that is trained: a name, ``module:factory``, or a function or class that makes one. It adds a
        ``[learning]`` section where there is none.
    :param aggregation: how uploads are mixed: the name of a rule, ``module:attribute``, or an ``Aggregator`` object. It adds a
        ``[learning]`` section as well.
    :param out: a new folder for the records (docs/records.md). Without it they stay in the result.
    :param trace: also record queue and score of every device at every decision.
    :param records: False: only the summary is kept, if there is no folder.
    :param checkpoints: rounds at which ``Result.series`` is sampled, from 1 to ``run.rounds``.
    :param progress: is called with the number of selections so far.
    :param callbacks: one or several objects that follow the run (``Callback``).
    :param on_round: is called with every ``Row``, like the method of a ``Callback``.
    :param on_evaluation: is called with every ``Evaluation``.
    :param on_end: is called with the ``Result``.
    :param checkpoint_every_s: wall seconds between two checkpoints of a training that has a folder.
    :param executor: computes the trainings, in place of the configured one.
    :raises FedtwinError: bad input, in one sentence.
    """
    config = charged(configured(config, policy, model, aggregation))
    for sentence in (impossible_min_mean_samples(config), without_effect(config)):
        if sentence is not None:
            warnings.warn(sentence, FedtwinWarning, stacklevel=2)
    wanted = Wanted(
        out=path_or_none("out", out),
        trace=truth_given("trace", trace),
        records=truth_given("records", records),
        checkpoints=rounds_given("checkpoints", checkpoints, config.run.rounds),
        progress=function_or_none("progress", progress),
        checkpoint_every_s=seconds_given("checkpoint_every_s", checkpoint_every_s),
        executor=object_with("executor", executor, ("adopt", "submit", "result"), "an executor of fedtwin.learning"),
        listeners=Listeners(callbacks, on_round, on_evaluation, on_end),
    )
    return _told(_run(config, wanted, None), wanted.listeners)


def resume(
    folder: str | Path,
    *,
    progress: Callable[[int], None] | None = None,
    callbacks: Any = (),
    on_round: OnRound | None = None,
    on_evaluation: OnEvaluation | None = None,
    on_end: OnEnd | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
) -> Result:
    """Goes on with an unfinished run: its schedule is replayed, its training continues from the last checkpoint.

    Without one that can be used the training is done again. Callbacks hear of the replayed rounds too.
    """
    path = path_given("folder", folder)
    config, trace = read_unfinished(path)
    wanted = Wanted(
        out=path,
        trace=trace,
        progress=progress,
        checkpoint_every_s=checkpoint_every_s,
        listeners=Listeners(callbacks, on_round, on_evaluation, on_end),
    )
    state = None
    if config.learning is not None:
        from fedtwin.learning.checkpoint import read_checkpoint

        state = read_checkpoint(path, config_hash(config))
    try:
        result = _run(config, wanted, Resumed(state))
    except UnfitCheckpointError as error:
        warnings.warn(f"{str(error).rstrip('.')}; the training is done again from the start.", FedtwinWarning, stacklevel=2)
        result = _run(config, wanted, Resumed(None))
    return _told(result, wanted.listeners)


def _told(result: Result, listeners: Listeners) -> Result:
    if sentence := sentence_of_declines(result.config, result.summary):
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)
    listeners.tell_end(result)
    return result


def _run(config: Config, wanted: Wanted, resumed: Resumed | None) -> Result:
    wanted = replace(wanted, records=wanted.records and config.run.records)
    if wanted.trace and not config.run.records:
        raise FedtwinError("run.records = false keeps no rounds, and a trace is a part of them: leave out one of the two.")
    load_parts(config)
    if engine_for(config, trace=wanted.trace) == "compiled":
        try:
            return run_compiled(config, wanted, resume=resumed is not None)
        except CannotCompileError as error:
            if config.run.engine == "compiled" or wanted.listeners.rows_told > 0:
                raise
            resumed = Resumed(None) if wanted.out is not None else None
            if isinstance(error, EnginesDifferError):
                warnings.warn(f"{error} It starts again that way now.", FedtwinWarning, stacklevel=3)
                if wanted.out is not None:
                    clear_rounds(wanted.out)
    return run_readable(config, wanted, resumed)


def load_parts(config: Config) -> None:
    """Policy and world, with the settings they declare: what is wrong with them is said before anything is written."""
    knobs_of(config)
    parts_of(config)


def impossible_min_mean_samples(config: Config) -> str | None:
    """C1 asks for more than one selection a round can give: legal, and worth one sentence."""
    if config.world.sensing != "uniform":
        return None  # how many samples it gives is not known
    asked = config.objective.min_mean_samples
    largest = largest_min_mean_samples(config, fleet_columns(config).samples.tolist())
    if asked <= largest:
        return None
    return (
        f"objective.min_mean_samples = {asked:g} cannot be met by any policy on this fleet: "
        f"the largest value that might be is {largest:.4g}."
    )
