"""A fleet that is attacked, one for all attacks of a file."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.live.hostile import Fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        asyncio.run(fleet.goes_on())
        yield fleet
