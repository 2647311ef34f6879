"""Settings and states by their names in compiled code: a record that a part declares, made from plain numbers.

Signatures of compiled functions hold plain tuples and arrays only, so that code kept on disk is found again.
"""

from functools import cache
from typing import Any

from numba.np.unsafe.ndarray import to_fixed_tuple
from numpy.typing import NDArray

from fedtwin.policies.base import Knobs, News
from fedtwin.sim.fast.layout import Rules
from fedtwin.sim.fast.steps import knobs_in, observe_of_policy, own_state


@cache
def state_of(record: Any) -> Any:
    width = len(record._fields)

    def own_state(own: NDArray[Any], device: int) -> Any:
        return record(*to_fixed_tuple(own[device], width))  # type: ignore[call-arg]

    return own_state


def hear_by_policy(rules: Rules, own: NDArray[Any], device: int, news: News) -> None:
    state = observe_of_policy(own_state(own, device), news, knobs_in(rules))
    for place in range(len(state)):
        own[device, place] = state[place]


@cache
def knobs_of(record: Any) -> Any:
    def knobs_in(rules: Rules) -> Knobs:
        plain = rules.knobs
        return Knobs(plain.v, plain.bonus_scale, plain.seed, plain.min_mean_samples, record(*plain.settings))

    return knobs_in


@cache
def channel_settings_of(record: Any) -> Any:
    def channel_settings_in(rules: Rules) -> Any:
        return record(*rules.channel_settings)

    return channel_settings_in


@cache
def load_settings_of(record: Any) -> Any:
    def load_settings_in(rules: Rules) -> Any:
        return record(*rules.load_settings)

    return load_settings_in


@cache
def sensing_settings_of(record: Any) -> Any:
    def sensing_settings_in(rules: Rules) -> Any:
        return record(*rules.sensing_settings)

    return sensing_settings_in


@cache
def availability_settings_of(record: Any) -> Any:
    def availability_settings_in(rules: Rules) -> Any:
        return record(*rules.availability_settings)

    return availability_settings_in
