"""Change: what an upload has changed is added, whatever the model has become meanwhile."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.learning.aggregation.made_up import SIZE, models, rule, uploads

CHANGE = {"learning.aggregation": "change", "learning.mixing": 0.6, "learning.staleness_exponent": 0.5}


def test_it_is_its_equation() -> None:
    expected = np.ones(SIZE)
    given = uploads(30)
    for upload, model in zip(given, models(rule(CHANGE), given), strict=True):
        expected = expected + 0.6 * (upload.staleness + 1) ** -0.5 * (upload.weights.astype(float) - upload.start)
        assert model == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_it_is_fedbuff_of_one() -> None:
    other = rule({**CHANGE, "learning.aggregation": "fedbuff", "learning.buffer_size": 1})
    for one, its in zip(models(rule(CHANGE), uploads(30)), models(other, uploads(30)), strict=True):
        assert one == pytest.approx(its, rel=1e-5, abs=1e-5)


@given(seed=st.integers(0, 2**32))
def test_the_order_of_uploads_does_not_matter(seed: int) -> None:
    some = uploads(8, seed)
    *_, one = models(rule(CHANGE), some)
    *_, other = models(rule(CHANGE), some[::-1])
    assert one == pytest.approx(other, rel=1e-4, abs=1e-4)


def test_an_upload_that_has_changed_nothing_changes_nothing() -> None:
    for upload in uploads(5):
        assert (next(models(rule(CHANGE), [upload._replace(weights=upload.start)])) == np.float32(1.0)).all()
