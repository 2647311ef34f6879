"""A run and all that serves it: the broker where it is ours, the evaluation worker, the edge server, at the end the records."""

import logging
import shutil
import tomllib
import warnings
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedtwin.config import CodeConfig, Config, replace_settings
from fedtwin.config.data_files import is_file_of_data
from fedtwin.errors import FedtwinError, FedtwinWarning, ServedElsewhereError
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.charges import with_update_bits
from fedtwin.learning.compression import upload_bits
from fedtwin.learning.layout import Layout
from fedtwin.learning.notices import never_gathered, variances_out_of_bounds
from fedtwin.learning.passed_over import passed_over
from fedtwin.live.broker.process import Broker
from fedtwin.live.event_loop import StopSignals, run_until_stopped
from fedtwin.live.logs import say
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import LEDGER_NAME
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.past import beginning_of, has_ledger
from fedtwin.live.run.salvage import Salvage
from fedtwin.live.run.tables import write_newest, write_records
from fedtwin.live.server.edge import EdgeOptions, EdgeServer
from fedtwin.live.server.handover import caught_up
from fedtwin.live.server.place import Place
from fedtwin.live.server.worker import Worker, evaluator_command, initial_model_of
from fedtwin.live.views.advice import Advice
from fedtwin.live.views.device_series import MOST_DEVICES
from fedtwin.live.views.metrics import check_metrics
from fedtwin.live.views.reasons import Reasons
from fedtwin.live.watchdog import Watchdog
from fedtwin.live.wire.protocol import check_name
from fedtwin.live.wire.settings import one_digest, shared_settings, shipped_code
from fedtwin.live.wire.tensors import Codec, read_model
from fedtwin.records.files import LOCK_NAME
from fedtwin.records.lock import Lock

NOTHING_MIXED_IN, NO_UPLOAD_COMES_THROUGH, DAMAGED = 3, 4, 6


@dataclass(frozen=True)
class Served:
    """How a run ended: its summary; why no upload came through at that moment, if none did; why none was ever mixed in."""

    summary: dict[str, Any]
    trouble: str | None = None
    nothing: str | None = None

    @property
    def exit_code(self) -> int:
        """Of ``fedtwin edge``: 0 where uploads were mixed in and still came through."""
        if self.trouble is not None:
            return NO_UPLOAD_COMES_THROUGH
        if self.nothing is not None:
            return NOTHING_MIXED_IN
        return DAMAGED if self.summary.get("damaged_lines") else 0

    @property
    def error(self) -> str | None:
        """What went wrong, as a sentence."""
        if self.trouble is not None:
            return f"No upload came through when the run ended: {self.trouble}."
        if self.nothing is not None:
            return f"No upload was mixed in: {self.nothing}."
        return str(self.summary["incomplete"]) if self.summary.get("damaged_lines") else None


def serve(
    config: Config,
    out: Path,
    *,
    run: str = "main",
    place: Place | None = None,
    initial: Path | None = None,
    evaluator: bool = True,
    metrics: str | None = None,
    metrics_devices: int = MOST_DEVICES,
    grace_s: float = 10.0,
    logs: Sequence[str] = (),
    ship_code: bool = False,
) -> Served:
    """Runs the edge server of a new run until all its rounds are played, or until SIGTERM or Ctrl-C.

    ``out`` is a new folder, which has the ledger while the run goes on, and its records at the end. ``place`` says where the
    broker is; without servers one is started, with its store in the folder. The run starts from the model in the file
    ``initial`` (safetensors), or from the one that ``[learning]`` describes; that is evaluated by a worker of its own where
    ``evaluator`` is set and PyTorch installed. ``metrics`` is HOST:PORT for Prometheus, with series of
    their own for the first ``metrics_devices`` devices. A stop waits ``grace_s`` seconds for
    uploads on their way. ``logs`` are options for the worker, such as ``["--log-format", "json"]``. With ``ship_code`` boards
    that accept it get the source of a model of your own.
    """
    check_name("--run", run)
    place = checked(place, metrics, new=True)
    if ship_code:
        shipped_code(config)
    if config.live is not None and config.live.ledger == "stream" and not place.servers:
        raise FedtwinError("live.ledger = 'stream' needs a NATS server of your own: give --server URL.")
    live = _begun(out, _with_live_section(config), run, initial)
    try:
        return serve_run(
            live,
            place,
            evaluator=evaluator,
            metrics=metrics,
            metrics_devices=metrics_devices,
            grace_s=grace_s,
            logs=logs,
            new=True,
            ship_code=ship_code,
        )
    except ServedElsewhereError:
        shutil.rmtree(out)  # nobody has heard of it
        raise


def resume(
    folder: Path,
    *,
    run: str | None = None,
    repair: bool = False,
    place: Place | None = None,
    evaluator: bool = True,
    metrics: str | None = None,
    metrics_devices: int = MOST_DEVICES,
    grace_s: float = 10.0,
    logs: Sequence[str] = (),
    ship_code: bool = False,
) -> Served:
    """Goes on with the run in a folder, wherever it was stopped or killed; the rest is as for ``serve``.

    Where ``run`` is given, it must be the run's name. What is damaged is an error; with ``repair`` the run goes back to the
    last state that verifies, and what is cut off stays in the folder.
    """
    place = checked(place, metrics, new=False)
    with StopSignals() as signals:
        lock = None
        if name := name_at_the_broker(folder, place):
            if repair:  # what the broker has of what is cut off comes again from there
                opening.repaired(folder)
            lock = Lock(folder / LOCK_NAME)
            if not caught_up(folder, name, place, lock, signals, standby=False):
                return Served({})
        live = reopened(folder, run, lock, repair=repair and lock is None)
        return serve_run(
            live,
            place,
            evaluator=evaluator,
            metrics=metrics,
            metrics_devices=metrics_devices,
            grace_s=grace_s,
            logs=logs,
            signals=signals,
            ship_code=ship_code,
        )


def name_at_the_broker(folder: Path, place: Place) -> str | None:
    """The name of the run in a folder whose ledger is at the broker; None where it is in the folder.

    A folder that has only followed a ledger so far has no settings yet.
    """
    if not has_ledger(folder):
        return None
    began = beginning_of(folder)
    if began.config is None or tomllib.loads(began.config)["live"].get("ledger", "file") == "file":
        return None
    if not place.servers:
        raise FedtwinError(f"The ledger of {str(folder)!r} is at the broker (live.ledger = 'stream'): give --server URL.")
    return began.run


def reopened(folder: Path, run: str | None, lock: Lock | None = None, *, repair: bool = False) -> LiveRun:
    """The run in a folder, if that is its name."""
    live = opening.resume(folder, repair=repair, lock=lock)
    if run is not None and live.name != run:
        live.close()
        raise FedtwinError(f"--run {run!r} is not the name of the run in {str(folder)!r}: that is {live.name!r}.")
    return live


def checked(place: Place | None, metrics: str | None, *, new: bool) -> Place:
    """What cannot be is said before anything is made."""
    place = place or Place()
    place.check(new=new)
    if metrics is not None:
        check_metrics(metrics)
    return place


def _with_live_section(config: Config) -> Config:
    """The same with the live section written out, so that the folder shows what was in force, and which limits were given."""
    settings: dict[str, Any] = config.live.model_dump() if config.live is not None else {"time_scale": 1.0}
    if settings.get("limits_from_fleet") is None:
        given = config.objective.model_fields_set
        settings["limits_from_fleet"] = [name for name in ("max_time_s", "max_energy_j") if name not in given]
    return replace_settings(config, {f"live.{key}": value for key, value in settings.items()})


def _begun(out: Path, config: Config, name: str, initial: Path | None) -> LiveRun:
    """A new run, from a model in a file or from the one its ``[learning]`` describes."""
    if initial is not None:
        try:
            layout, weights = read_model(initial.read_bytes(), str(initial))
        except OSError as error:
            raise FedtwinError(f"--initial {str(initial)!r} cannot be read: {error.strerror}.") from None
        return _opened(out, config, name, layout, Codec(layout).encode(weights))
    if find_spec("torch") is None or config.learning is None:
        what = "[learning] in the configuration" if config.learning is None else "PyTorch (pip install 'fedtwin[learn]')"
        raise FedtwinError(f"The run needs a model to start from: --initial FILE.safetensors, or {what}.")
    outputs, model = initial_model_of(config)
    if is_file_of_data(config.learning.dataset):  # a board may lack the last class
        config = replace_settings(config, {"learning.outputs": outputs})
    return _opened(out, config, name, read_model(model, "initial")[0], model)


def _opened(out: Path, config: Config, name: str, layout: Layout, model: bytes) -> LiveRun:
    """What is legal and changes nothing, or is of no use, is told when the run is there."""
    run = opening.begin(out, _charged(config, layout), name, model)
    for sentence in _sentences_about(run.config, layout):
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)
    return run


def _sentences_about(config: Config, layout: Layout) -> list[str]:
    learning = config.learning
    if learning is None:
        return []
    stops, most = None, learning.most_refusals
    if most:
        stops = f"learning.most_refusals = {most} is without effect: a live run leaves out who sends what it refuses."
    rule = aggregation_of(config)
    told = (stops, passed_over(config), never_gathered(config, rule), variances_out_of_bounds(learning, rule, layout))
    return [sentence for sentence in told if sentence is not None]


def _charged(config: Config, layout: Layout) -> Config:
    """With the bits of this model where ``radio.update_bits = "model"``."""
    if config.radio.update_bits == "model" and config.learning is None:
        raise FedtwinError("radio.update_bits = 'model' needs a [learning] section, which says how the model is sent.")
    return config if config.learning is None else with_update_bits(config, upload_bits(layout, config.learning))


def serve_run(
    run: LiveRun,
    place: Place,
    *,
    evaluator: bool,
    metrics: str | None,
    metrics_devices: int,
    grace_s: float,
    logs: Sequence[str],
    signals: StopSignals | None = None,
    standby: bool = False,
    new: bool = False,
    ship_code: bool = False,
) -> Served:
    """``signals`` that are listened to already; ``standby``: the name is waited for; ``new``: nobody has heard of the run."""
    with ExitStack() as ends:  # all of them, whichever is cut short
        signals = signals or ends.enter_context(StopSignals())
        ends.callback(run.close)
        code = shipped_code(run.config) if ship_code else None
        if code is not None:
            digest = one_digest(CodeConfig(**shared_settings(run.config)["code"]))
            say(logging.INFO, "ships code to devices that accept it", digest=digest, files=", ".join(sorted(code)))
        folder = run.folder / "broker"
        options = place.broker_options(folder, fsync=run.core.live.fsync)
        if run.core.finished:  # killed between its last event and its records
            Broker.stop_left_over(folder, options)
            return Served(write_records(run.folder, run.core, run.model), nothing=why_nothing_was_mixed_in(run))
        servers, broker, worker = place.servers, None, None
        if not servers:
            broker = Broker.adopt_or_start(folder, options, insecure=place.insecure)
            ends.callback(broker.stop)
            servers = [broker.url]
            say(logging.INFO, f"devices connect with: {device_command(run, broker.url, place)}")
        if evaluator and run.config.learning is not None and find_spec("torch") is not None and place.has("evaluator"):
            worker = Worker(evaluator_command(servers, run.name, run.config.code.folder, place, list(logs)))
            ends.callback(worker.stop)
        edge_options = EdgeOptions(servers, broker, place.credentials_of("edge"), place.insecure, metrics, grace_s, worker)
        edge_options.standby, edge_options.new, edge_options.code = standby, new, code
        edge_options.metrics_devices = metrics_devices

        def make() -> tuple[Coroutine[Any, Any, str | None], Callable[[], None]]:
            edge = EdgeServer(run, edge_options)

            async def served() -> str | None:
                async with Watchdog():
                    await edge.serve()
                return edge.trouble

            return served(), edge.stop

        try:
            trouble = run_until_stopped(make, signals)
        except FedtwinError:
            if run.failure is not None and run.core.live.ledger == "file":
                with suppress(FedtwinError, OSError):
                    write_newest(run.folder, run.core, run.written_model())
            raise
        return Served(write_records(run.folder, run.core, run.model), trouble, why_nothing_was_mixed_in(run))


def device_command(run: LiveRun, url: str, place: Place) -> str:
    """What is typed at a board; the words in capitals are the board's own."""
    credentials = "" if place.credentials is None else " --credentials DIR_OF_NAME"
    data = "" if run.config.learning is None else " --data FILE"
    return f"fedtwin device NAME --server {url} --run {run.name}{credentials}{data}"


def why_nothing_was_mixed_in(run: LiveRun) -> str | None:
    """The reasons counted, since the last upload; None where the run did not end for want of uploads, or was stopped before
    anything had come to nothing.
    """
    if run.core.applied and not run.core.is_barren:
        return None
    reasons, advice = Reasons(), Advice(run.core)
    for event in Salvage(run.folder / LEDGER_NAME).events():
        if isinstance(event, events.Applied):
            reasons.clear()
        if event is not None:
            reasons.happened(event)
            advice.happened(event)
    if not reasons and not run.core.finished:
        return None
    told = "; ".join([*reasons.told(), *filter(None, [advice.told()])]) or "nobody was asked"
    return f"since version {run.core.version} {told}" if run.core.applied else told
