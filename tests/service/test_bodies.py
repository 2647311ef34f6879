"""Bodies are checked by the schemas that the OpenAPI document shows, and no otherwise than a validator checks them."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedtwin.service.asking import BODY as QUESTION
from fedtwin.service.bodies import check_body
from fedtwin.service.orders import BODY as ORDER
from fedtwin.service.telling import UnansweredError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2000) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["order", "device", "setting", "value", "run", "at", "set", "without", "add", "rounds", "worlds", "seed", "more"]
BODIES = JSON | st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from(["pause", "drain", "a-1", "a b"]), max_size=5)


@pytest.mark.parametrize("schema", [QUESTION, ORDER])
@given(body=BODIES)
@example(body={"run": "a", "rounds": 10, "set": {"policy.v": 1.5}, "without": [1, "b"]})
@example(body={"order": "drain", "device": "a-1"})
def test_a_body_fits_where_a_validator_says_so(schema: dict[str, Any], body: Any) -> None:
    if any(isinstance(value, float) and value.is_integer() for value in (body.values() if isinstance(body, dict) else [body])):
        return  # 2.0 is an integer to JSON Schema, and to nobody who counts rounds
    try:
        check_body(schema, body)
        fits = True
    except UnansweredError as error:
        assert error.status == 400
        fits = False
    assert fits == jsonschema_rs.is_valid(schema, body)
