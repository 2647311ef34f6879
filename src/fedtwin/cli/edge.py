"""``fedtwin edge``: the edge server of a live fleet."""

import logging
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtwin.cli.options import ConfigFile, JsonOption, PolicyOption, RoundsOption, SeedOption, SetOption, configuration
from fedtwin.cli.screen import number, print_json, print_table
from fedtwin.config import Config, replace_settings
from fedtwin.errors import FedtwinError

if TYPE_CHECKING:
    from fedtwin.live.run import LiveRun

ServerOption = Annotated[
    list[str] | None, typer.Option("--server", metavar="URL", help="NATS server, nats://HOST:PORT; again for a cluster.")
]
CredentialsOption = Annotated[Path | None, typer.Option(metavar="DIR", help="Certificates made by fedtwin provision.")]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Allow plain text to other machines.")]
RunName = Annotated[str, typer.Option("--run", help="Name of the run: letters, digits, - and _.")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option(help="text or json.")]
WORKER_PAUSE_S = 5.0


def edge(
    config_file: ConfigFile = None,
    policy: PolicyOption = None,
    rounds: RoundsOption = None,
    seed: SeedOption = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the run.")] = None,
    resume_folder: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="Go on with the run in here.")] = None,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="--resume DIR if it is there, else --out DIR.")] = None,
    server: ServerOption = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Without --server: where our own broker listens; else loopback.")
    ] = None,
    mqtt: Annotated[
        int | None, typer.Option("--mqtt-port", min=1, max=65535, help="Our broker takes MQTT clients here.")
    ] = None,
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    run_name: Annotated[str | None, typer.Option("--run", help="Name of the run (main): letters, digits, - and _.")] = None,
    time_scale: Annotated[
        float | None, typer.Option(help="Wall seconds per second of the run's clock (live.time_scale).")
    ] = None,
    initial: Annotated[Path | None, typer.Option(metavar="FILE", help="Initial model, safetensors.")] = None,
    evaluator: Annotated[bool, typer.Option(help="Start an evaluation worker here, if PyTorch is installed.")] = True,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics here.")] = None,
    grace_s: Annotated[float, typer.Option(min=0.0, help="Seconds a stop waits for uploads on their way.")] = 10.0,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the edge server of a live fleet. Without --server it starts a NATS server of its own, its store in the folder."""
    from fedtwin.live.serving import require_nats

    require_nats()
    set_up_logs(log_level, log_format)
    check_name("--run", run_name or "main")
    if state is not None:
        if out is not None or resume_folder is not None:
            raise FedtwinError("--state DIR stands for --out or --resume: give one of them.")
        if (state / "ledger.jsonl").exists() and (state / "summary.json").exists():
            typer.echo(f"The run in {state} is finished. For a new one name another folder.", err=True)
            return  # no error, or a service would be started again and again
        resume_folder, out = (state, None) if (state / "ledger.jsonl").exists() else (None, state)
    given = (config_file, policy, rounds, seed, time_scale, initial, assignments)
    if (out is None) == (resume_folder is None):
        raise FedtwinError("One of --out DIR (a new run), --resume DIR and --state DIR is needed.")
    if state is None and resume_folder is not None and any(option is not None for option in given):
        raise FedtwinError("--resume DIR goes on with the settings in its folder: leave the others out.")
    config = None
    if out is not None:
        config = live_configuration(
            configuration(config_file, assignments, policy=policy, rounds=rounds, seed=seed), time_scale=time_scale
        )
    check_places(server, listen, mqtt, credentials, insecure=insecure, new=out is not None)
    if metrics is not None:
        from fedtwin.live.metrics import check_metrics

        check_metrics(metrics)
    run = open_run(out, resume_folder, config, run_name or "main", initial)
    if run_name is not None and run.name != run_name:
        run.close()
        raise FedtwinError(f"--run {run_name!r} is not the name of the run in {str(run.folder)!r}: that is {run.name!r}.")
    summary = serve_run(
        run,
        servers=server,
        listen=listen,
        mqtt_port=mqtt,
        credentials=credentials,
        insecure=insecure,
        evaluator=evaluator,
        metrics=metrics,
        grace_s=grace_s,
        logs=["--log-level", log_level, "--log-format", log_format],
    )
    if as_json:
        print_json(summary)
    else:
        print_summary(summary, run.folder)


def live_configuration(config: Config, *, time_scale: float | None) -> Config:
    """The same with the live section written out, so that the folder shows what was in force."""
    settings: dict[str, Any] = config.live.model_dump() if config.live is not None else {}
    if time_scale is not None:
        settings["time_scale"] = time_scale
    return replace_settings(config, {f"live.{key}": value for key, value in (settings or {"time_scale": 1.0}).items()})


def check_places(
    server: list[str] | None, listen: str | None, mqtt: int | None, credentials: Path | None, *, insecure: bool, new: bool
) -> None:
    """Bad addresses are said before a folder is made. A port that is taken may be our own broker's, unless the run is new."""
    from fedtwin.live.addresses import check_address, check_free
    from fedtwin.live.broker_config import BrokerOptions, check_exposure

    if server and listen:
        raise FedtwinError("--listen is for our own broker: it cannot be given with --server.")
    for url in server or []:
        check_address(url, credentials=credentials, insecure=insecure)
    host, port = host_and_port(listen) if listen is not None else ("127.0.0.1", 0)
    if not server:
        check_exposure(BrokerOptions(Path(), host=host, credentials=credentials), insecure=insecure)
    for option, number_ in (("--listen", port), ("--mqtt-port", mqtt)):
        if new and not server and number_:
            try:
                check_free(host, number_)
            except OSError as error:
                raise FedtwinError(f"{option}: {host}:{number_} cannot be listened on: {error.strerror}.") from None


def host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise FedtwinError(f"--listen {listen!r} is not HOST:PORT, such as 0.0.0.0:4222.")
    return host.strip("[]"), int(port)


def open_run(out: Path | None, resume_folder: Path | None, config: Config | None, name: str, initial: Path | None) -> "LiveRun":
    from fedtwin.live import run

    if resume_folder is not None:
        return run.resume(resume_folder)
    assert out is not None and config is not None
    if initial is not None:
        from fedtwin.live.tensors import Codec, read_model

        try:
            layout, weights = read_model(initial.read_bytes(), str(initial))
        except OSError as error:
            raise FedtwinError(f"--initial {str(initial)!r} cannot be read: {error.strerror}.") from None
        return run.begin(out, config, name, Codec(layout).encode(weights))
    if find_spec("torch") is None or config.learning is None:
        what = "[learning] in the configuration" if config.learning is None else "PyTorch (pip install 'fedtwin[learn]')"
        raise FedtwinError(f"The run needs a model to start from: --initial FILE.safetensors, or {what}.")
    return run.begin(out, config, name, _made_by_a_worker(config))


def _made_by_a_worker(config: Config) -> bytes:
    """The initial model, from a process of its own: this one stays without PyTorch."""
    code = (
        "import sys; from fedtwin.config import Config; from fedtwin.live.evaluator import initial_model; "
        "sys.path.append(''); sys.stdout.buffer.write(initial_model(Config.model_validate_json(sys.stdin.buffer.read())))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], input=config.model_dump_json(exclude_none=True).encode(), capture_output=True, check=False
    )
    if made.returncode != 0:
        last = (made.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise FedtwinError(f"The initial model cannot be made: {last.rpartition('FedtwinError: ')[2].rstrip('.')}.")
    return made.stdout


def serve_run(
    run: "LiveRun",
    *,
    servers: list[str] | None,
    listen: str | None,
    mqtt_port: int | None,
    credentials: Path | None,
    insecure: bool,
    evaluator: bool,
    metrics: str | None,
    grace_s: float,
    logs: list[str],
) -> dict[str, Any]:
    """Broker (where it is ours), evaluation worker, edge server; at the end the records."""
    from fedtwin.live.broker import Broker, BrokerOptions
    from fedtwin.live.edge import EdgeOptions, EdgeServer
    from fedtwin.live.logs import say
    from fedtwin.live.records import write_records
    from fedtwin.live.serving import serve

    if run.core.finished:  # killed between its last event and its records
        try:
            Broker.stop_left_over(run.folder / "broker", BrokerOptions(run.folder / "broker" / "store"))
            return write_records(run.folder, run.core)
        finally:
            run.close()
    broker: Broker | None = None
    worker: Worker | None = None
    own = credentials / "edge" if credentials is not None and (credentials / "edge").is_dir() else credentials
    try:
        if not servers:
            host, port = host_and_port(listen) if listen is not None else ("127.0.0.1", None)
            options = BrokerOptions(
                run.folder / "broker" / "store",
                port=port,
                host=host,
                fsync=run.core.live.fsync,
                mqtt_port=mqtt_port,
                credentials=credentials,
            )
            broker = Broker.adopt_or_start(run.folder / "broker", options, insecure=insecure)
            servers = [broker.url]
            say(logging.INFO, f"devices connect with: fedtwin device NAME --server {broker.url} --run {run.name}")
        if evaluator and run.config.learning is not None and find_spec("torch") is not None:
            theirs = credentials / "evaluator" if credentials is not None and (credentials / "evaluator").is_dir() else None
            if credentials is None or theirs is not None:
                worker = Worker(evaluator_command(servers, run.name, theirs, logs, insecure=insecure))
        options_ = EdgeOptions(servers, broker, own, insecure, metrics, grace_s, worker.look_after if worker else None)

        def make() -> Any:
            edge_server = EdgeServer(run, options_)
            return edge_server.serve(), edge_server.stop

        serve(make)
        return write_records(run.folder, run.core)
    finally:
        if worker is not None:
            worker.stop()
        if broker is not None:
            broker.stop()
        run.close()


class Worker:
    """A process that is started again when it ends, though not all the time."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._start()

    def _start(self) -> None:
        from fedtwin.live.broker_process import ended_with_parent

        self._started = time.monotonic()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=ended_with_parent()
        )

    def look_after(self) -> None:
        if self._process.poll() is not None and time.monotonic() - self._started > WORKER_PAUSE_S:
            self._start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def evaluator_command(
    servers: list[str], run_name: str, credentials: Path | None, logs: list[str], *, insecure: bool
) -> list[str]:
    command = [sys.executable, "-m", "fedtwin", "evaluator", "--run", run_name, *logs]
    for url in servers:
        command += ["--server", url]
    if credentials is not None:
        command += ["--credentials", str(credentials)]
    if insecure:
        command += ["--insecure"]
    return command


def print_summary(summary: dict[str, Any], folder: Path) -> None:
    from fedtwin.cli.run import EXPLAINED

    live = {
        "devices": "devices",
        "uploads_applied": "uploads mixed in",
        "uploads_late": "of these after their task was given up",
        "tasks_given_up": "tasks given up",
        "model_version": "version of the model",
    }
    named = {**EXPLAINED, "virtual_time_s": "time on the run's clock, s", "refusals": "messages refused", **live}
    rows = [[text, number(summary[name])] for name, text in named.items() if summary.get(name) is not None]
    print_table(f"{summary.get('scheme', 'not started')}, live", ["", ""], rows)
    if summary.get("quarantined"):
        typer.echo(f"In quarantine: {', '.join(summary['quarantined'])} (why: refusals.parquet)")
    typer.echo(f"Records: {folder}")


def set_up_logs(level: str, form: str) -> None:
    from fedtwin.live import logs

    if level not in logs.LEVELS:
        raise FedtwinError(f"--log-level {level!r} is not allowed: it must be one of {', '.join(logs.LEVELS)}.")
    if form not in logs.FORMATS:
        raise FedtwinError(f"--log-format {form!r} is not allowed: it must be one of {', '.join(logs.FORMATS)}.")
    logs.set_up(level, form)


def check_name(option: str, name: str) -> None:
    import re

    from fedtwin.live.protocol import NAME

    if not re.fullmatch(NAME, name):
        raise FedtwinError(f"{option} {name!r} is not allowed: 1 to 64 letters, digits, - and _.")
