"""What travels is as near to what was trained as every scheme says, and what it leaves out is not lost."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedtwin.config import LearningConfig, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.compression import SCHEMES, Compressor, compressor_of, upload_bits
from fedtwin.learning.compression.top_k import largest
from fedtwin.learning.layout import Floats, Layout, Weights, layout_of

ENTRIES = st.one_of(
    st.floats(2.0**-14, 2.0**12, width=32), st.floats(-(2.0**12), -(2.0**-14), width=32), st.sampled_from([0.0, 1.0, -1.0])
)
VECTORS = npst.arrays(np.float32, st.integers(1, 60), elements=ENTRIES)
NAMES = list(SCHEMES)


def layout_with(*sizes: int, statistics: int = 0, counters: int = 0) -> Layout:
    """Tensors of these sizes, then BatchNorm's."""
    tensors = {f"layer{number}.weight": ((size,), False) for number, size in enumerate(sizes)}
    if statistics:
        tensors |= {"norm.running_mean": ((statistics,), False), "norm.running_var": ((statistics,), False)}
    return layout_of({**tensors, **({"norm.num_batches_tracked": ((counters,), True)} if counters else {})})


def compressor(name: str, layout: Layout, share: float = 0.1, *, feeds_back: bool = True) -> Compressor:
    learning = LearningConfig(
        compress=name,
        **({"top_k": share} if name == "top-k" else {}),
        **({} if feeds_back else {"error_feedback": False}),
    )
    found = compressor_of(learning, layout)
    assert found is not None
    return found


def of(floats: Floats, counters: tuple[int, ...] = ()) -> Weights:
    return Weights(floats, np.array(counters, np.int64))


def arrived(name: str, change: Floats, share: float = 0.1) -> Floats:
    """What is left of a change from a model of zeros."""
    both = compressor(name, layout_with(len(change)), share)
    start = of(np.zeros_like(change))
    return both.receive(start, both.send(start, of(change)).parts).floats


@given(VECTORS)
def test_float16_has_an_error_of_a_2048th(change: Floats) -> None:
    assert np.all(np.abs(arrived("float16", change) - change) <= np.abs(change) / 2048.0)


@given(st.lists(VECTORS, min_size=1, max_size=4))
def test_int8_has_an_error_of_half_a_step_of_its_tensor(tensors: list[Floats]) -> None:
    layout = layout_with(*map(len, tensors))
    both, change = compressor("int8", layout), np.concatenate(tensors)
    start = of(np.zeros_like(change))
    sent = both.send(start, of(change))
    found = both.receive(start, sent.parts).floats
    half = np.repeat([np.abs(tensor).max() / 254.0 for tensor in tensors], [len(tensor) for tensor in tensors])
    assert np.all(np.abs(found - change) <= half * (1.0 + 1e-5))
    assert sent.parts["change"].min() >= -127 and both.fault(sent.parts) is None


@given(VECTORS, st.floats(0.01, 0.5))
def test_top_k_keeps_exactly_the_largest(change: Floats, share: float) -> None:
    found = arrived("top-k", change, share)
    k = int(np.ceil(round(share * len(change), 6)))
    kept = largest(change, k)
    by_the_book = sorted(range(len(change)), key=lambda place: (-abs(change[place]), place))[:k]
    assert kept.tolist() == sorted(by_the_book), "of entries of the same size the first"
    others = np.setdiff1d(np.arange(len(change)), kept)
    assert np.array_equal(found[kept], change[kept]) and not found[others].any()


@pytest.mark.parametrize("name", ["int8", "top-k"])
@given(st.lists(npst.arrays(np.float32, 24, elements=ENTRIES), min_size=1, max_size=12))
@settings(max_examples=40)
def test_what_was_sent_and_what_is_left_out_is_what_was_changed(name: str, changes: list[Floats]) -> None:
    """Σ sent + e_n = Σ changes, up to the rounding of float32."""
    both, start = compressor(name, layout_with(10, 14)), of(np.zeros(24, np.float32))
    error, came = None, np.zeros(24)
    for change in changes:
        sent = both.send(start, of(change), error)
        error, came = sent.left_out, came + both.receive(start, sent.parts).floats
    assert error is not None and error.shape == (both.error_size,)
    size = sum(np.abs(change).max() for change in changes) * len(changes)
    np.testing.assert_allclose(came + error, np.sum(changes, axis=0, dtype=np.float64), atol=1e-5 * size, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("statistics", "counters"), [(0, 0), (3, 2)])
def test_statistics_and_counters_come_whole(name: str, statistics: int, counters: int) -> None:
    layout = layout_with(40, 0, 5, statistics=statistics, counters=counters)
    rng, both = np.random.default_rng(0), compressor(name, layout)
    start = of(rng.normal(size=layout.float_size).astype(np.float32), (1,) * counters)
    trained = of(rng.normal(size=layout.float_size).astype(np.float32), (7,) * counters)
    sent = both.send(start, trained)
    found = both.receive(start, sent.parts)
    assert np.array_equal(found.floats[45:], trained.floats[45:]) and found.counters.tolist() == counters * [7]
    assert not np.array_equal(found.floats[:45], trained.floats[:45]) and both.error_size == 45
    assert {part: (array.dtype.type, array.size) for part, array in sent.parts.items()} == both.parts
    assert both.bits == 8 * sum(array.nbytes for array in sent.parts.values())
    assert both.fault(sent.parts) is None


@pytest.mark.parametrize(
    ("changes", "bits"),
    [
        ({}, 32 * 1006 + 64),
        ({"compress": "float16"}, 16 * 1000 + 32 * 6 + 64),
        ({"compress": "int8"}, 8 * 1000 + 2 * 32 + 32 * 6 + 64),
        ({"compress": "top-k"}, 10 * 64 + 32 * 6 + 64),
        ({"compress": "top-k", "top_k": 0.1}, 100 * 64 + 32 * 6 + 64),
    ],
)
def test_bits(changes: dict[str, Any], bits: int) -> None:
    assert upload_bits(layout_with(600, 400, statistics=3, counters=1), LearningConfig(**changes)) == bits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_arrives_so(name: str, bad: float) -> None:
    change = np.linspace(0.1, 1.0, 20, dtype=np.float32)
    change[3] = bad
    both, start = compressor(name, layout_with(20)), of(np.zeros(20, np.float32))
    sent = both.send(start, of(change))
    assert (
        str(both.fault(sent.parts)).startswith("not finite") and not np.isfinite(both.receive(start, sent.parts).floats).all()
    )


def test_no_change_is_sent_as_none() -> None:
    for name in NAMES:
        assert not arrived(name, np.zeros(9, np.float32)).any()


def test_without_error_feedback_nothing_is_kept() -> None:
    layout, start, trained = layout_with(20), of(np.zeros(20, np.float32)), of(np.linspace(0.1, 1, 20, dtype=np.float32))
    for name in ("int8", "top-k"):
        assert compressor(name, layout, feeds_back=False).send(start, trained).left_out is None
    assert compressor("float16", layout).send(start, trained).left_out is None


@pytest.mark.parametrize(
    ("name", "part", "places", "value", "reason"),
    [
        ("float16", "change", slice(2, 3), np.inf, "not finite: change"),
        ("int8", "steps", slice(0, 1), np.nan, "not finite: steps"),
        ("int8", "steps", slice(0, 1), -1.0, "range: a step is negative"),
        ("int8", "change", slice(0, 1), -128, "range: a number of steps is -128"),
        ("top-k", "values", slice(0, 1), np.nan, "not finite: values"),
        ("top-k", "places", slice(2, 3), 30, "range: a place is outside the model"),
        ("top-k", "places", slice(2, 3), 2**32 - 1, "range: a place is outside the model"),
        ("top-k", "places", slice(0, 3), 5, "range: the places are not in order, each once"),
        ("top-k", "places", slice(0, 1), 29, "range: the places are not in order, each once"),
        ("top-k", "statistics", slice(0, 1), np.inf, "not finite: statistics"),
    ],
)
def test_what_no_device_of_ours_sends(name: str, part: str, places: slice, value: float, reason: str) -> None:
    both = compressor(name, layout_with(30, statistics=1))
    rng = np.random.default_rng(1)
    start, trained = (of(rng.normal(size=32).astype(np.float32)) for _ in range(2))
    parts = {key: np.array(array) for key, array in both.send(start, trained).parts.items()}
    assert both.fault(parts) is None
    parts[part][places] = value
    assert str(both.fault(parts)).startswith(reason)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning.top_k": 0.1}, "top_k = 0.1 is of compress = 'top-k', not of 'none'"),
        ({"learning.top_k": 0.6, "learning.compress": "top-k"}, "learning.top_k = 0.6 is not allowed: it must be less than or"),
        ({"learning.error_feedback": False}, "error_feedback = false is of compress = 'int8' or 'top-k', not of 'none'"),
        ({"learning.error_feedback": False, "learning.compress": "float16"}, "not of 'float16'"),
        ({"learning.compress": "zip"}, "learning.compress = 'zip' is not allowed"),
    ],
)
def test_settings_that_would_be_passed_over_are_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(FedtwinError) as told:
        load_config(overrides=changes)
    assert words in str(told.value)


@pytest.mark.parametrize(("share", "size", "sent"), [(0.1, 30, 3), (0.1, 31, 4), (1e-9, 30, 1), (0.5, 1, 1), (0.1, 0, 0)])
def test_one_entry_at_least_is_sent_and_never_more_than_there_are(share: float, size: int, sent: int) -> None:
    assert np.count_nonzero(arrived("top-k", np.arange(1, size + 1, dtype=np.float32), share)) == sent
