import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedtwin.draws import GOLDEN, MASK, Purpose, mix, ranks, stream, streams, uniform, word

WORDS = st.integers(0, MASK)


def test_words_are_those_of_the_published_splitmix64() -> None:
    """The first outputs of SplitMix64 seeded with 1234567, as its reference implementation prints them."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [word(1234567, counter) for counter in range(5)] == published


@given(start=WORDS, counter=st.integers(0, 2**48))
def test_arrays_give_the_same_bits_as_integers(start: int, counter: int) -> None:
    assert int(word(np.array([start], dtype=np.uint64), counter)[0]) == word(start, counter)


@given(seed=st.integers(0, 2**63 - 1), device=st.integers(0, 2**40), purpose=st.sampled_from(Purpose))
def test_streams_of_arrays_and_integers_agree(seed: int, device: int, purpose: Purpose) -> None:
    assert int(stream(seed, purpose, np.array([device], dtype=np.uint64))[0]) == stream(seed, int(purpose), device)


@given(bits=st.one_of(WORDS, st.sampled_from([0, MASK])))
def test_uniform_is_strictly_inside(bits: int) -> None:
    assert 0.0 < uniform(bits) < 1.0


@given(a=WORDS, b=WORDS)
def test_mix_is_injective(a: int, b: int) -> None:
    assert (mix(a) == mix(b)) == (a == b)


@pytest.mark.parametrize("purpose", list(Purpose))
def test_uniform_numbers_look_uniform_over_rounds_and_over_devices(purpose: Purpose) -> None:
    over_rounds = [uniform(word(stream(7, int(purpose), 3), counter)) for counter in range(5000)]
    over_devices = [uniform(int(word(streams(7, purpose, 5000), 11)[device])) for device in range(0, 5000, 5)]
    assert stats.kstest(over_rounds, "uniform").pvalue > 1e-4
    assert stats.kstest(over_devices, "uniform").pvalue > 1e-4


def test_neighbouring_seeds_devices_and_purposes_are_unrelated() -> None:
    base = np.array([uniform(word(stream(1, 2, 3), k)) for k in range(3000)])
    for seed, purpose, device in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        other = np.array([uniform(word(stream(seed, purpose, device), k)) for k in range(3000)])
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.07


@given(seed=st.integers(0, 2**63 - 1), devices=st.integers(1, 200))
def test_ranks_are_a_permutation(seed: int, devices: int) -> None:
    assert sorted(ranks(seed, Purpose.TIES, devices)) == list(range(devices))


def test_golden_is_odd_so_that_counters_never_repeat_a_word() -> None:
    assert GOLDEN % 2 == 1
