"""A device or an evaluation worker in this process, until it is stopped."""

from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.device.trainers import Trainer
from fedtwin.live.event_loop import run_agent
from fedtwin.live.server.evaluator import Evaluator
from fedtwin.live.wire.protocol import check_name

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
    credentials: Path | None = None,
    insecure: bool = False,
) -> None:
    """Runs the agent of one device: it joins the run, answers, trains and uploads until SIGTERM or Ctrl-C.

    ``trainer`` is whatever has ``prepare``, ``train`` and ``stop``: ``TorchTrainer``, ``CommandTrainer``, ``NoTrainer`` or one
    of your own. ``radio`` is ``"measured"`` (the real link) or ``"emulated"`` (the simulator's channel at ``distance_m``);
    with ``fleet_device`` it plays that device of the run's simulated fleet, its place, CPU, data and quantities. ``cpu_hz`` is
    for where the system does not tell, ``max_power_w`` is p_n^max where it is not the run's. ``credentials`` is the device's
    folder of those that ``provision`` makes.
    """
    check_name("--run", run)
    check_name("NAME", name)
    if radio not in RADIOS:
        raise FedtwinError(f"--radio {radio!r} is not allowed: it must be one of {', '.join(RADIOS)}.")
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
    )
    run_agent(lambda: Agent(options))


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
