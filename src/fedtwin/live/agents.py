"""A device or an evaluation worker in this process, until it is stopped; and what a person orders an edge server."""

import asyncio
import getpass
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.device.calibration import Calibration, read_calibration
from fedtwin.live.device.calibrator import Calibrator, calibrated_alone
from fedtwin.live.device.shipped import CodeRules
from fedtwin.live.device.trainers import Trainer
from fedtwin.live.event_loop import run_agent
from fedtwin.live.server.evaluator import Evaluator
from fedtwin.live.wire.ports import NobodyThereError
from fedtwin.live.wire.protocol import Command, Order, Ordered, Subjects, check_device_name, check_name, misfit
from fedtwin.live.wire.real import REAL
from fedtwin.live.wire.troubles import TROUBLES, words_of

ANSWER_S = 10.0
RADIOS = ("measured", "emulated")


def run_device(
    name: str,
    servers: list[str],
    trainer: Trainer,
    *,
    run: str = "main",
    radio: str = "measured",
    distance_m: float = 100.0,
    fleet_device: int | None = None,
    cpu_hz: float | None = None,
    max_power_w: float | None = None,
    calibration: Path | None = None,
    credentials: Path | None = None,
    insecure: bool = False,
    accept_code: bool = False,
    code_digest: str | None = None,
) -> None:
    """Runs the agent of one device: it joins the run, answers, trains and uploads until SIGTERM or Ctrl-C.

    ``trainer`` is whatever has ``prepare``, ``train`` and ``stop``: ``TorchTrainer``, ``CommandTrainer``, ``NoTrainer`` or one
    of your own. ``radio`` is ``"measured"`` (the real link) or ``"emulated"`` (the simulator's channel at ``distance_m``);
    with ``fleet_device`` it plays that device of the run's simulated fleet, its place, CPU, data and quantities. ``cpu_hz`` is
    for where the system does not tell, ``max_power_w`` is p_n^max where it is not the run's. ``calibration`` is a file of
    ``fedtwin calibrate``; without, a board measures itself before it joins. ``credentials`` is the device's folder of those
    that ``provision`` makes. With ``accept_code`` the source of the run's own model may come from an edge server that ships
    it; ``code_digest``, 16 of its digits or all, names the only code of the run's that is run here.
    """
    check_name("--run", run)
    check_device_name(name)
    if radio not in RADIOS:
        raise FedtwinError(f"--radio {radio!r} is not allowed: it must be one of {', '.join(RADIOS)}.")
    if accept_code and insecure and code_digest is None:
        raise FedtwinError("--accept-code with --insecure needs --code-digest: in plain text anybody could send the code.")
    if max_power_w is not None and fleet_device is not None:
        raise FedtwinError("--max-power-w and --emulate exclude each other: an emulated device has the power of its fleet's.")
    options = AgentOptions(
        name,
        servers,
        trainer,
        run=run,
        radio="emulated" if fleet_device is not None else radio,
        distance_m=distance_m,
        fleet_device=fleet_device,
        cpu_hz=cpu_hz,
        max_power_w=max_power_w,
        credentials=credentials,
        insecure=insecure,
        calibration=None if calibration is None else read_calibration(calibration),
        code=CodeRules(accept=accept_code, digest=code_digest),
    )
    run_agent(lambda: Agent(options))


def calibrate(
    name: str,
    trainer: Trainer,
    *,
    config: Config | None = None,
    servers: list[str] | None = None,
    run: str = "main",
    cpu_hz: float | None = None,
    credentials: Path | None = None,
    insecure: bool = False,
) -> Calibration | None:
    """Measures what a training takes on this board, by the settings ``config``, or by those of the run at ``servers``, and then
    the goodput to its broker too. None where it was stopped.
    """
    check_name("--run", run)
    check_device_name(name)
    if (config is None) == (not servers):
        raise FedtwinError("One of --config FILE and --server URL is needed: they say what is trained.")
    options = AgentOptions(name, servers or [], trainer, run=run, cpu_hz=cpu_hz, credentials=credentials, insecure=insecure)
    if config is not None:
        return calibrated_alone(options, config)
    made: list[Calibrator] = []

    def make() -> Calibrator:
        made.append(Calibrator(options))
        return made[0]

    run_agent(make)
    return made[0].found


def run_evaluator(
    servers: list[str],
    *,
    run: str = "main",
    data: str | None = None,
    code: Path | None = None,
    credentials: Path | None = None,
    insecure: bool = False,
) -> None:
    """Runs an evaluation worker until SIGTERM or Ctrl-C: it needs PyTorch, and tells the edge server how good the model is.

    ``data`` is a test set in place of the run's, ``code`` a folder with the run's own model.
    """
    check_name("--run", run)
    run_agent(lambda: Evaluator(servers, run, data=data, code=code, credentials=credentials, insecure=insecure))


def release(
    device: str, servers: list[str], *, run: str = "main", credentials: Path | None = None, insecure: bool = False
) -> str:
    """Lets a device back that the edge server leaves out: in quarantine, backed off, drained, cut off or revoked for a flood.

    The rest is as for ``order``.
    """
    return order("release", servers, device=device, run=run, credentials=credentials, insecure=insecure)


def order(
    command: Command,
    servers: list[str],
    *,
    device: str | None = None,
    setting: str | None = None,
    value: Any = None,
    run: str = "main",
    credentials: Path | None = None,
    insecure: bool = False,
    person: str | None = None,
    identity: str | None = None,
) -> str:
    """Steers a run: ``pause``, ``resume``, ``drain`` or ``release`` of a device, ``set`` of a setting, ``finish``.

    ``credentials`` is the folder ``operator`` of those that ``provision`` makes. ``person`` is who the ledger is told it was,
    by default who runs this. ``identity`` (``Began.identity``) names the one run of this name that is meant. Gives
    the edge server's words; what it does not do is a ``FedtwinError`` with them.
    """
    check_name("--run", run)
    if device is not None:
        check_name("DEVICE", device)
    try:
        wanted = Order(
            command=command, device=device, setting=setting, value=value, person=person or _person(), identity=identity
        )
    except ValidationError as error:
        raise FedtwinError(f"The order cannot be given: {misfit(error)}.") from None
    answer = asyncio.run(_ordered(wanted, servers, run, credentials, insecure))
    if not answer.done:
        raise FedtwinError(answer.words)
    return answer.words


def _person() -> str:
    """Who gives an order, for the ledger; nobody checks it."""
    with suppress(OSError, KeyError):
        return f"{getpass.getuser()}@{socket.gethostname()}"[:200]
    return "unknown"


async def _ordered(order: Order, servers: list[str], run: str, credentials: Path | None, insecure: bool) -> Ordered:
    place = ", ".join(servers)
    try:
        async with asyncio.timeout(ANSWER_S):
            transport = await REAL.connect(servers, name="operator", credentials=credentials, insecure=insecure)
            try:
                answer = await transport.request(Subjects(run).admin, order.encoded(), timeout_s=ANSWER_S)
            finally:
                await transport.close()
    except NobodyThereError:
        raise FedtwinError(f"No edge server of run {run!r} is at {place}.") from None
    except TROUBLES as error:
        why = f"within {ANSWER_S:g} s" if isinstance(error, TimeoutError) else words_of(error)
        raise FedtwinError(f"The edge server of run {run!r} at {place} does not answer: {why}.") from None
    return Ordered.model_validate_json(answer)
