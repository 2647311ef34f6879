import subprocess
import sys

import pytest

import fedtwin

HEAVY = ("numpy", "pydantic", "scipy", "pyarrow", "matplotlib", "typer", "rich", "pandas", "numba", "torch", "cryptography")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_is_lazy() -> None:
    assert loaded_after("import fedtwin") == set()


def test_a_device_that_plans_its_power_loads_neither_scipy_nor_arrow() -> None:
    assert loaded_after("import fedtwin; fedtwin.plan_power") == {"numpy", "pydantic"}


def test_neither_the_command_line_nor_a_board_s_agent_loads_what_only_a_simulation_needs() -> None:
    assert loaded_after("import fedtwin.cli.app, fedtwin.live.agents, fedtwin.live.device.emulation") == {
        *("numpy", "pydantic", "typer"),
    }


@pytest.mark.parametrize("name", [name for name in fedtwin.__all__ if name != "__version__"])
def test_every_public_name_is_there(name: str) -> None:
    assert callable(getattr(fedtwin, name))
    assert name in dir(fedtwin)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        fedtwin.nothing_like_it  # noqa: B018
