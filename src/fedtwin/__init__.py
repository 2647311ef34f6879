"""fedtwin: asynchronous federated learning over a fleet of devices at the least energy and delay.

Everything here is imported when first used, so that ``import fedtwin`` costs a small device nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Comparison": "fedtwin.experiments.compare",
    "Config": "fedtwin.config",
    "FedtwinError": "fedtwin.errors",
    "FedtwinWarning": "fedtwin.errors",
    "PowerPlan": "fedtwin.formulas.power",
    "Figure": "fedtwin.figures.figure",
    "Callback": "fedtwin.sim",
    "OraclePolicy": "fedtwin.policies",
    "Policy": "fedtwin.policies",
    "Result": "fedtwin.sim",
    "Run": "fedtwin.runs",
    "SweepResult": "fedtwin.experiments.sweep",
    "compare": "fedtwin.experiments.compare",
    "figure": "fedtwin.figures.figure",
    "load_config": "fedtwin.config",
    "open_run": "fedtwin.runs",
    "plan_power": "fedtwin.formulas.power",
    "plot": "fedtwin.figures.runs",
    "simulate": "fedtwin.sim",
    "sweep": "fedtwin.experiments.sweep",
    "whatif": "fedtwin.whatif",
}

__all__ = [
    "Callback",
    "Comparison",
    "Config",
    "FedtwinError",
    "FedtwinWarning",
    "Figure",
    "OraclePolicy",
    "Policy",
    "PowerPlan",
    "Result",
    "Run",
    "SweepResult",
    "__version__",
    "compare",
    "figure",
    "load_config",
    "open_run",
    "plan_power",
    "plot",
    "simulate",
    "sweep",
    "whatif",
]

if TYPE_CHECKING:
    from fedtwin.config import Config, load_config
    from fedtwin.errors import FedtwinError, FedtwinWarning
    from fedtwin.experiments.compare import Comparison, compare
    from fedtwin.experiments.sweep import SweepResult, sweep
    from fedtwin.figures.figure import Figure, figure
    from fedtwin.figures.runs import plot
    from fedtwin.formulas.power import PowerPlan, plan_power
    from fedtwin.policies import OraclePolicy, Policy
    from fedtwin.runs import Run, open_run
    from fedtwin.sim import Callback, Result, simulate
    from fedtwin.whatif import whatif


_OF_THE_SIMULATOR = ("fedtwin.experiments", "fedtwin.figures", "fedtwin.sim", "fedtwin.whatif")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedtwin' has no attribute {name!r}")
    if _HOME[name].startswith(_OF_THE_SIMULATOR):
        from fedtwin.extras import require_sim

        require_sim(f"fedtwin.{name}")
    elif _HOME[name] == "fedtwin.runs":
        from fedtwin.extras import require

        require(f"fedtwin.{name}", "sim", "pyarrow")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
