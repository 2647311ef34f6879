"""Left to itself, a run serves an average where it is long enough not to lose by it."""

from pathlib import Path

import pytest
from benchmarks.average import ahead, read, table

from fedtwin.config import config_hash, load_config
from fedtwin.config.schema import AVERAGED_FROM_ROUNDS
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.aggregation.average import AveragedRule


@pytest.mark.parametrize(("rounds", "long"), [(AVERAGED_FROM_ROUNDS - 1, False), (AVERAGED_FROM_ROUNDS, True)])
def test_auto_goes_by_the_length_of_the_run_and_names_no_other_configuration(rounds: int, long: bool) -> None:
    given = {"learning.dataset": "digits", "run.rounds": rounds}
    auto, ema, none = (load_config(overrides={**given, "learning.average": how}) for how in ("auto", "ema", "none"))
    assert load_config(overrides=given) == auto, "the default"
    assert (auto.averages, ema.averages, none.averages) == (long, True, False)
    assert isinstance(aggregation_of(auto), AveragedRule) == long
    assert config_hash(auto) == config_hash(ema if long else none) != config_hash(none if long else ema)


def test_nothing_is_averaged_where_nothing_is_trained() -> None:
    assert not load_config(overrides={"run.rounds": 10 * AVERAGED_FROM_ROUNDS}).averages


def test_it_is_as_long_as_was_measured() -> None:
    docs = Path(__file__).parents[2] / "docs"
    lines = read(docs / "results" / "average.csv")
    shown = (docs / "learning.md").read_text(encoding="utf-8").partition("<!-- average -->\n")[2].partition("\n<!-- end -->")[0]
    assert shown == table(lines)
    long_ones = {
        case: [ahead(one) for one in lines if one.case == case and one.round >= AVERAGED_FROM_ROUNDS] for case, *_ in lines
    }
    assert all(sum(points) / len(points) > -0.15 for points in long_ones.values())
