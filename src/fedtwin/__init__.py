"""fedtwin: asynchronous federated learning over a fleet of devices at the least energy and delay.

Everything here is imported when first used, so that ``import fedtwin`` costs a small device nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Callback": "fedtwin.sim",
    "Config": "fedtwin.config",
    "FedtwinError": "fedtwin.errors",
    "FedtwinWarning": "fedtwin.errors",
    "OraclePolicy": "fedtwin.policies",
    "Policy": "fedtwin.policies",
    "PowerPlan": "fedtwin.power",
    "Result": "fedtwin.sim",
    "load_config": "fedtwin.config",
    "plan_power": "fedtwin.power",
    "simulate": "fedtwin.sim",
}

__all__ = [
    "Callback",
    "Config",
    "FedtwinError",
    "FedtwinWarning",
    "OraclePolicy",
    "Policy",
    "PowerPlan",
    "Result",
    "__version__",
    "load_config",
    "plan_power",
    "simulate",
]

if TYPE_CHECKING:
    from fedtwin.config import Config, load_config
    from fedtwin.errors import FedtwinError, FedtwinWarning
    from fedtwin.policies import OraclePolicy, Policy
    from fedtwin.power import PowerPlan, plan_power
    from fedtwin.sim import Callback, Result, simulate


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedtwin' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
