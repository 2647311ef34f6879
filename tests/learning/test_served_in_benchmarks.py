"""Benchmarks state which model their tables are of: the default goes by the length of a run."""

import pytest
from benchmarks import rules, search, update_size

from fedtwin.config import load_config


@pytest.mark.parametrize("rounds", [rules.ROUNDS, rules.ROUNDS // 3])
@pytest.mark.parametrize("rule", rules.tried())
def test_the_rules_are_compared_by_their_averaged_models(rule: str, rounds: int) -> None:
    for partition in rules.PARTITIONS:
        assert all(rules.config_of(rule, partition, one, 1, rounds).averages for one in rules.tried()[rule])


@pytest.mark.parametrize("profile", search.PROFILES.values(), ids=search.PROFILES)
def test_rates_were_searched_by_the_plain_model(profile: search.Profile) -> None:
    assert not search.config_of(profile, profile.datasets[0], search.SCHEMES[0], *profile.pairs[0]).averages


def test_sizes_of_the_update_are_compared_by_the_averaged_model() -> None:
    assert load_config(overrides={**update_size.SETTINGS, "run.rounds": 500}).averages
