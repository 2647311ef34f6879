"""The page beside a command: it waits for the run, ends with the command, and may end before it."""

import shutil
import time
from pathlib import Path

import httpx
import pytest

from fedtwin.cli.page import _operator_of, page_beside
from tests.conftest import until
from tests.service.folders import simulated


def test_a_page_is_there_as_soon_as_the_run_is_and_ends_with_the_block(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made, folder, said = simulated(tmp_path / "made", run__rounds=20, run__engine="readable"), tmp_path / "run", ""

    def address() -> str | None:
        nonlocal said
        said += capfd.readouterr().err
        return said.split(" at ")[1].strip() if " at " in said and said.endswith("\n") else None

    with page_beside(True, folder, 0) as process:
        assert process is not None
        with httpx.Client(base_url=until(address, "the address", process), timeout=60) as client:
            assert client.get("/api/runs").json()["runs"][0]["unreadable"] == "The run 'run' has not begun yet."
            shutil.copytree(made, folder)
            until(lambda: client.get("/api/runs").json()["runs"][0]["rounds"] == 20, "the run is seen", process)
    assert process.returncode is not None
    with page_beside(False, folder, 0) as process:
        assert process is None


def test_a_page_that_dies_is_nothing_to_the_block(tmp_path: Path) -> None:
    with page_beside(True, tmp_path / "run", 0) as process:
        assert process is not None
        process.kill()
        process.wait()
        time.sleep(0.01)


def test_the_page_gives_orders_with_the_operators_certificate_of_the_fleet(tmp_path: Path) -> None:
    (tmp_path / "fleet" / "operator").mkdir(parents=True)
    (tmp_path / "fleet" / "edge").mkdir()
    for given in (tmp_path / "fleet", tmp_path / "fleet" / "edge"):
        assert _operator_of(given) == tmp_path / "fleet" / "operator"
    assert _operator_of(None) is None and _operator_of(tmp_path / "elsewhere" / "edge") is None
