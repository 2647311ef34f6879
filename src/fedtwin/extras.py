"""Libraries that ``pip install fedtwin`` does not bring, because a board does without them, and the extra that does."""

from importlib.util import find_spec

from fedtwin.errors import FedtwinError


def require(what: str, extra: str, *libraries: str) -> None:
    """One sentence where a library is missing: before the work is begun, not when its results are to be written."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise FedtwinError(f"{what} needs {' and '.join(missing)}: pip install 'fedtwin[{extra}]'.")


def require_sim(what: str) -> None:
    """Tables and statistics: what simulations, sweeps and figures all need."""
    require(what, "sim", "pyarrow", "scipy")


def require_edge(what: str) -> None:
    """The edge server ends with tables of its run, and has its numbers read while it runs."""
    require(what, "live", "prometheus_client", "pyarrow")
