"""fedtwin: asynchronous federated learning over a fleet of devices at the least energy and delay.

Everything here is imported when first used, so that ``import fedtwin`` costs a small device nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Config": "fedtwin.config",
    "FedtwinError": "fedtwin.errors",
    "FedtwinWarning": "fedtwin.errors",
    "PowerPlan": "fedtwin.power",
    "Result": "fedtwin.sim",
    "Run": "fedtwin.runs",
    "load_config": "fedtwin.config",
    "open_run": "fedtwin.runs",
    "plan_power": "fedtwin.power",
    "simulate": "fedtwin.sim",
}

__all__ = [
    "Config",
    "FedtwinError",
    "FedtwinWarning",
    "PowerPlan",
    "Result",
    "Run",
    "__version__",
    "load_config",
    "open_run",
    "plan_power",
    "simulate",
]

if TYPE_CHECKING:
    from fedtwin.config import Config, load_config
    from fedtwin.errors import FedtwinError, FedtwinWarning
    from fedtwin.power import PowerPlan, plan_power
    from fedtwin.runs import Run, open_run
    from fedtwin.sim import Result, simulate


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedtwin' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
