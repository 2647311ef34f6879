"""Whatever is asked by the OpenAPI document, and whatever is not, is answered without an error of the server's own."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from fedtwin.service import limits
from fedtwin.service.all_routes import ROUTES
from fedtwin.service.openapi import document
from tests.service.serving import serving

STREAM = "/api/runs/{run}/events"
SLOW = "/api/whatif"
SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))
OPERATIONS = [
    operation
    for found in SCHEMA.get_all_operations()
    if (operation := found.ok()).path not in (STREAM, SLOW)  # type: ignore[union-attr]
]
CONFORMS = [content_type_conformance, response_schema_conformance, status_code_conformance]
KNOWN = {"run": "factory", "thing": "factory:device-7", "feature": "link", "property": "gain"}


@pytest.fixture(scope="module")
def fuzzed(folder: Path) -> Iterator[httpx.Client]:
    """As many requests as there are."""
    with pytest.MonkeyPatch.context() as patch, serving(folder) as client:
        patch.setattr(limits, "AT_ONCE", 1e9)
        yield client


def fuzz(client: httpx.Client, examples: int, operation: object) -> None:
    @settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
    )
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())  # type: ignore[attr-defined]
        if data.draw(st.booleans()):
            held = case.path_parameters or {}
            case.path_parameters = {**held, **{name: value for name, value in KNOWN.items() if name in held}}
        case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() == "if-none-match"}
        answer = case.call(base_url=str(client.base_url))
        assert answer.status_code < 500, (case.formatted_path, answer.text)
        case.validate_response(answer, checks=[schemathesis.checks.not_a_server_error, *CONFORMS])

    ask()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method.upper()} {operation.path}")
def test_every_route_answers(fuzzed: httpx.Client, operation: object) -> None:
    fuzz(fuzzed, 4, operation)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method.upper()} {operation.path}")
def test_every_route_answers_for_long(fuzzed: httpx.Client, operation: object) -> None:
    fuzz(fuzzed, 300, operation)
