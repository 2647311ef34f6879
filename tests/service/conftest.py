"""One simulation, served once, for all tests that only read it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fedtwin import Run, open_run
from tests.service.folders import simulated
from tests.service.serving import serving


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("runs") / "factory", run__rounds=400, run__engine="readable", fleet__channels=5)


@pytest.fixture(scope="package")
def run(folder: Path) -> Run:
    return open_run(folder)


@pytest.fixture(scope="package")
def client(folder: Path) -> Iterator[httpx.Client]:
    with serving(folder) as one:
        yield one
