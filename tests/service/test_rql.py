"""Ditto's filters: what is written is read back, and matches what a plain reading of it matches."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.service.rql import Filter, NotRqlError, _like, _like_sign_by_sign, parse

PATHS = ["thingId", "attributes/n", "features/link/properties/gain"]
VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=5)
LEAVES = st.one_of(
    st.builds(
        lambda op, path, value: Filter(op, path, (value,)),
        st.sampled_from(["eq", "ne", "gt", "ge", "lt", "le"]),
        st.sampled_from(PATHS),
        VALUES,
    ),
    st.builds(
        lambda path, values: Filter("in", path, tuple(values)), st.sampled_from(PATHS), st.lists(VALUES, min_size=1, max_size=3)
    ),
    st.builds(
        lambda op, path, text: Filter(op, path, (text,)),
        st.sampled_from(["like", "ilike"]),
        st.sampled_from(PATHS),
        st.text("ab*?.", max_size=4),
    ),
    st.builds(lambda path: Filter("exists", path), st.sampled_from(PATHS)),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda op, parts: Filter(op, parts=tuple(parts)),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda part: Filter("not", parts=(part,)), inner),
    ),
    max_leaves=8,
)
THINGS = st.lists(st.fixed_dictionaries({path: VALUES | st.text("ab.", max_size=3) for path in PATHS}), max_size=5)


def plainly(one: Filter, thing: dict[str, Any]) -> bool:
    """One thing at a time, as the page of Ditto's docs tells it."""
    if one.parts:
        found = [plainly(part, thing) for part in one.parts]
        return {"and": all(found), "or": any(found), "not": not found[0]}[one.operator]
    value = thing[one.path]
    if one.operator == "exists":
        return value is not None
    if one.operator in ("like", "ilike"):
        pattern = "".join(".*" if sign == "*" else "." if sign == "?" else re.escape(sign) for sign in one.values[0])
        flags = re.DOTALL | (re.IGNORECASE if one.operator == "ilike" else 0)
        return isinstance(value, str) and bool(re.fullmatch(pattern, value, flags))
    same = [type(value) is type(wanted) or {type(value), type(wanted)} == {int, float} for wanted in one.values]
    equal = [fits and value == wanted for fits, wanted in zip(same, one.values, strict=True)]
    if one.operator in ("eq", "ne", "in"):
        return any(equal) != (one.operator == "ne")
    wanted = one.values[0]
    if not same[0] or value is None or isinstance(value, bool):
        return False
    return bool({"gt": value > wanted, "ge": value >= wanted, "lt": value < wanted, "le": value <= wanted}[one.operator])


@given(FILTERS)
def test_a_filter_is_read_as_it_is_written(one: Filter) -> None:
    assert parse(str(one)) == one
    assert parse(str(one).replace(",", " , ").replace("(", " ( ")) == one or '"' in str(one)


@given(FILTERS, THINGS)
def test_a_filter_matches_what_it_says(one: Filter, things: list[dict[str, Any]]) -> None:
    found = one.matches(lambda path: [thing[path] for thing in things], len(things))
    assert found == [plainly(one, thing) for thing in things]


@given(st.text('andeqlike(),"\\1./ ', max_size=30))
def test_whatever_is_no_filter_is_one_sentence(text: str) -> None:
    try:
        assert isinstance(parse(text), Filter)
    except NotRqlError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends too early"),
        ("eq(a,1", "ends too early"),
        ("eq(a,1))", "follows its end"),
        ("eq(a)", "takes a path and 1 values"),
        ("is(a,1)", "'is' is no operator"),
        ("eq(a,b)", "'b' is no value"),
        ("not(eq(a,1),eq(b,2))", "not takes one"),
        ("like(a,1)", "compares with a text"),
        ("not(" * 60 + "exists(a)" + ")" * 60, "more than 50 deep"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    with pytest.raises(NotRqlError, match=words):
        parse(text)


@given(st.text("ab", max_size=12), st.text("ab*", max_size=8))
def test_a_pattern_of_stars_matches_what_it_does_sign_by_sign(text: str, pattern: str) -> None:
    assert _like(text, pattern) == _like_sign_by_sign(text, pattern)
