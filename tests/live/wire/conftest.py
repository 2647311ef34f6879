"""A broker to try things on: the real one and the one in memory, for all files of this folder."""

from collections.abc import Iterator

import pytest

from tests.live.wire.benches import NUMBERS, Bench, bench

KINDS = ["memory", "nats"]


@pytest.fixture(scope="package", params=KINDS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(request.param, tmp_path_factory.mktemp("bench")) as made:
        yield made


@pytest.fixture(scope="package", params=KINDS)
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(request.param, tmp_path_factory.mktemp("secure"), secure=True) as made:
        yield made


@pytest.fixture
def name() -> str:
    """Nobody else's at the broker."""
    return f"t{next(NUMBERS)}"
