"""The live fleet: edge server and device agents over NATS JetStream, driving the same coordinator as the simulator.

Everything here is imported when first used, so that ``import fedtwin.live`` needs no NATS library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "CommandTrainer": "fedtwin.live.device.trainers",
    "LocalFleet": "fedtwin.live.local",
    "NoTrainer": "fedtwin.live.device.trainers",
    "Place": "fedtwin.live.server.place",
    "Served": "fedtwin.live.server.hosting",
    "TorchTrainer": "fedtwin.live.device.torch_trainer",
    "Trainer": "fedtwin.live.device.trainers",
    "Viewer": "fedtwin.live.seeing",
    "Update": "fedtwin.live.device.trainers",
    "begin_from": "fedtwin.live.server.origin",
    "calibrate": "fedtwin.live.agents",
    "local_broker": "fedtwin.live.broker.process",
    "order": "fedtwin.live.agents",
    "provision": "fedtwin.live.broker.provisioning",
    "release": "fedtwin.live.agents",
    "resume": "fedtwin.live.server.hosting",
    "revoke": "fedtwin.live.broker.provisioning",
    "run_device": "fedtwin.live.agents",
    "run_evaluator": "fedtwin.live.agents",
    "serve": "fedtwin.live.server.hosting",
    "stand_by": "fedtwin.live.server.standby",
}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from fedtwin.live.agents import calibrate as calibrate
    from fedtwin.live.agents import order as order
    from fedtwin.live.agents import release as release
    from fedtwin.live.agents import run_device as run_device
    from fedtwin.live.agents import run_evaluator as run_evaluator
    from fedtwin.live.broker.process import local_broker as local_broker
    from fedtwin.live.broker.provisioning import provision as provision
    from fedtwin.live.broker.provisioning import revoke as revoke
    from fedtwin.live.device.torch_trainer import TorchTrainer as TorchTrainer
    from fedtwin.live.device.trainers import CommandTrainer as CommandTrainer
    from fedtwin.live.device.trainers import NoTrainer as NoTrainer
    from fedtwin.live.device.trainers import Trainer as Trainer
    from fedtwin.live.device.trainers import Update as Update
    from fedtwin.live.local import LocalFleet as LocalFleet
    from fedtwin.live.seeing import Viewer as Viewer
    from fedtwin.live.server.hosting import Served as Served
    from fedtwin.live.server.hosting import resume as resume
    from fedtwin.live.server.hosting import serve as serve
    from fedtwin.live.server.origin import begin_from as begin_from
    from fedtwin.live.server.place import Place as Place
    from fedtwin.live.server.standby import stand_by as stand_by


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedtwin.live' has no attribute {name!r}")
    if _HOME[name].startswith("fedtwin.live.server"):
        from fedtwin.extras import require_edge

        require_edge(f"fedtwin.live.{name}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        from fedtwin.live.wire.nats_connection import require_nats

        require_nats()
        raise error from None


def __dir__() -> list[str]:
    return sorted(__all__)
