import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.learning.partition import batch_sizes, class_counts, class_mix, deal, held_by_several, training_order

LABELS = np.repeat(np.arange(10), 2000)


@given(mix=st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda m: sum(m) > 0.1), total=st.integers(0, 1000))
def test_class_counts_add_up_and_are_closest(mix: list[float], total: int) -> None:
    shares = np.array(mix) / sum(mix)
    counts = class_counts(shares, total)
    assert counts.sum() == total and (np.abs(counts - shares * total) < 1 + 1e-9).all() and (counts >= 0).all()


def test_iid_devices_hold_an_even_mix_disjointly() -> None:
    shares = deal(LABELS, seed=1, devices=30, owned=500, gamma=None)
    assert all(np.bincount(LABELS[share], minlength=10).tolist() == [50] * 10 for share in shares)
    everything = np.concatenate(shares)
    assert len(np.unique(everything)) == len(everything) == 15_000


@pytest.mark.parametrize("gamma", [0.1, 0.5, 5.0])
def test_dirichlet_devices_follow_their_own_mix(gamma: float) -> None:
    shares = deal(LABELS, seed=1, devices=30, owned=500, gamma=gamma)
    for device, share in enumerate(shares):
        expected = class_counts(class_mix(1, device, 10, gamma), 500)
        assert np.bincount(LABELS[share], minlength=10).tolist() == expected.tolist()


def test_smaller_gamma_is_less_even() -> None:
    def unevenness(gamma: float) -> float:
        return float(np.mean([class_mix(3, device, 10, gamma).max() for device in range(200)]))

    assert unevenness(0.05) > unevenness(0.5) > unevenness(5.0) > unevenness(500.0) > 0.1
    assert unevenness(1e-30) == 1.0, "each device has one class"


def test_a_class_that_runs_out_is_shared_with_overlap() -> None:
    few = np.repeat(np.arange(10), 14)
    shares = deal(few, seed=1, devices=5, owned=100, gamma=None)
    assert all(len(share) == 100 for share in shares)
    first_round = np.concatenate([shares[0]])
    assert len(np.unique(first_round)) == 100, "disjoint while a class lasts"


def test_training_order_is_a_pure_function_of_device_and_round() -> None:
    share = np.arange(500)
    first = training_order(share, 0, 3, 7, samples=85, epochs=3)
    assert first.shape == (3, 85)
    assert np.array_equal(first, training_order(share, 0, 3, 7, 85, 3))
    assert not np.array_equal(first, training_order(share, 0, 3, 8, 85, 3))
    assert not np.array_equal(first, training_order(share, 0, 4, 7, 85, 3))
    for epoch in first:
        assert len(np.unique(epoch)) == 85 and set(epoch) == set(first[0])
    assert not np.array_equal(first[0], first[1])


@given(samples=st.integers(2, 500), batch_size=st.integers(2, 64))
def test_who_needs_pairs_never_gets_a_single_sample(samples: int, batch_size: int) -> None:
    sizes = batch_sizes(samples, batch_size, pairs=True)
    assert sum(sizes) == samples and min(sizes) >= 2
    assert max(sizes) <= batch_size + (batch_size == 2 and samples % 2)
    if batch_size > 2 or samples % 2 == 0:
        assert sizes == batch_sizes(samples, batch_size)


def test_samples_held_by_several_are_counted() -> None:
    few = np.repeat(np.arange(10), 14)
    assert held_by_several(deal(few, seed=1, devices=5, owned=100, gamma=None), 140) == 140
    assert held_by_several(deal(few, seed=1, devices=7, owned=20, gamma=None), 140) == 0
    assert held_by_several(deal(few, seed=1, devices=8, owned=20, gamma=None), 140) == 20


@given(samples=st.integers(1, 500), batch_size=st.integers(1, 64))
def test_batches_cover_the_epoch_and_the_last_is_never_one_of_many(samples: int, batch_size: int) -> None:
    sizes = batch_sizes(samples, batch_size)
    assert sum(sizes) == samples and max(sizes) <= batch_size and min(sizes) >= 1
    assert len(sizes) == -(-samples // batch_size)
    if samples > 1 and batch_size > 2:
        assert sizes[-1] > 1


def test_a_class_without_samples_gets_no_share() -> None:
    shares = deal(np.full(40, 9), seed=0, devices=5, owned=20, gamma=0.01)
    assert all(len(share) == 20 for share in shares)


def test_a_device_with_more_samples_than_it_owns_repeats_some() -> None:
    assert training_order(np.arange(5), 0, 0, 0, samples=12, epochs=1).shape == (1, 12)
