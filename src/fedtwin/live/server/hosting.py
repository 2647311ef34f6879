"""A run and all that serves it: the broker where it is ours, the evaluation worker, the edge server, at the end the records."""

import logging
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.live.broker.process import Broker
from fedtwin.live.event_loop import StopSignals, serve
from fedtwin.live.logs import say
from fedtwin.live.run import live_run as runs
from fedtwin.live.run.ledger import LEDGER_NAME, read_events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import write_records
from fedtwin.live.server.edge import EdgeOptions, EdgeServer
from fedtwin.live.server.place import Place
from fedtwin.live.server.worker import Worker, evaluator_command, initial_model_of
from fedtwin.live.views.reasons import Reasons
from fedtwin.live.wire.tensors import Codec, read_model


@dataclass(frozen=True)
class Served:
    """How a run ended: its summary; why no upload came through at that moment, if none did; why none was ever mixed in."""

    summary: dict[str, Any]
    trouble: str | None = None
    nothing: str | None = None


def begin_run(out: Path, config: Config, name: str, initial: Path | None) -> LiveRun:
    """A new run, from a model in a file or from the one its ``[learning]`` describes."""
    if initial is not None:
        try:
            layout, weights = read_model(initial.read_bytes(), str(initial))
        except OSError as error:
            raise FedtwinError(f"--initial {str(initial)!r} cannot be read: {error.strerror}.") from None
        return runs.begin(out, config, name, Codec(layout).encode(weights))
    if find_spec("torch") is None or config.learning is None:
        what = "[learning] in the configuration" if config.learning is None else "PyTorch (pip install 'fedtwin[learn]')"
        raise FedtwinError(f"The run needs a model to start from: --initial FILE.safetensors, or {what}.")
    return runs.begin(out, config, name, initial_model_of(config))


def serve_run(run: LiveRun, place: Place, *, evaluator: bool, metrics: str | None, grace_s: float, logs: list[str]) -> Served:
    """Until the run is over or stopped."""
    with StopSignals() as signals:
        return _serve_run(run, place, signals, evaluator=evaluator, metrics=metrics, grace_s=grace_s, logs=logs)


def _serve_run(
    run: LiveRun,
    place: Place,
    signals: StopSignals,
    *,
    evaluator: bool,
    metrics: str | None,
    grace_s: float,
    logs: list[str],
) -> Served:
    folder = run.folder / "broker"
    options = place.broker_options(folder, fsync=run.core.live.fsync)
    broker: Broker | None = None
    worker: Worker | None = None
    try:
        if run.core.finished:  # killed between its last event and its records
            Broker.stop_left_over(folder, options)
            return Served(write_records(run.folder, run.core), nothing=why_nothing_was_mixed_in(run))
        servers = place.servers
        if not servers:
            broker = Broker.adopt_or_start(folder, options, insecure=place.insecure)
            servers = [broker.url]
            say(logging.INFO, f"devices connect with: fedtwin device NAME --server {broker.url} --run {run.name}")
        if evaluator and run.config.learning is not None and find_spec("torch") is not None and place.has("evaluator"):
            worker = Worker(evaluator_command(servers, run.name, run.config.code.folder, place, logs))
        edge_options = EdgeOptions(servers, broker, place.credentials_of("edge"), place.insecure, metrics, grace_s, worker)

        def make() -> tuple[Coroutine[Any, Any, str | None], Callable[[], None]]:
            edge = EdgeServer(run, edge_options)

            async def served() -> str | None:
                await edge.serve()
                return edge.trouble

            return served(), edge.stop

        trouble = serve(make, signals)
        return Served(write_records(run.folder, run.core), trouble, why_nothing_was_mixed_in(run))
    finally:
        with ExitStack() as ends:  # all of them, whichever is cut short
            ends.callback(run.close)
            if broker is not None:
                ends.callback(broker.stop)
            if worker is not None:
                ends.callback(worker.stop)


def why_nothing_was_mixed_in(run: LiveRun) -> str | None:
    """The reasons counted; None where an upload was mixed in, or the run was stopped before anything had come to nothing."""
    if run.core.applied:
        return None
    reasons = Reasons()
    for event in read_events(run.folder / LEDGER_NAME):
        reasons.happened(event)
    if not reasons and not run.core.finished:
        return None
    return "; ".join(reasons.told()) or "nobody was asked"
