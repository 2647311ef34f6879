"""Known curves give known areas, times and differences."""

from typing import Any

import numpy as np
import pytest

from fedtwin.experiments.analysis.learning_curves import Points, first_reach, mean_between, summary_rows

RAMP = Points(np.array([0.0, 10.0, 20.0]), np.array([0.0, 0.5, 0.6]))


def rows(curve: str, seed: int, points: list[tuple[float, float]], plain: float | None = None) -> list[dict[str, Any]]:
    of = {"curve": curve, "seed": seed, "axis": "time"}
    return [{**of, "x": x, "test_accuracy": y, "plain_test_accuracy": plain} for x, y in points]


def found(table: list[dict[str, Any]], **where: Any) -> dict[str, Any]:
    (row,) = [row for row in table if all(row[name] == value for name, value in where.items())]
    return row


def test_an_area_is_that_of_straight_lines_between_evaluations() -> None:
    assert mean_between(RAMP, 0.0, 20.0) == pytest.approx((2.5 + 5.5) / 20.0)
    assert mean_between(RAMP, 5.0, 15.0) == pytest.approx((1.875 + 2.625) / 10.0)
    assert mean_between(RAMP, 16.0, 20.0) == pytest.approx(0.58)
    assert mean_between(RAMP, 11.0, 12.0) == pytest.approx(0.515), "between two evaluations"


def test_a_level_is_reached_where_the_line_first_comes_to_it() -> None:
    assert first_reach(RAMP, 0.25) == pytest.approx(5.0)
    assert first_reach(RAMP, 0.55) == pytest.approx(15.0)
    assert first_reach(RAMP, 0.6) == pytest.approx(20.0)
    assert first_reach(RAMP, 0.61) is None
    assert first_reach(Points(np.array([0.0, 1.0]), np.array([0.7, 0.8])), 0.6) == 0.0
    dips = Points(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.6, 0.2, 0.8]))
    assert first_reach(dips, 0.3) == pytest.approx(0.5)


def test_curves_are_compared_in_pairs_up_to_the_end_that_all_have() -> None:
    table = summary_rows(
        [
            *rows("one", 0, [(0.0, 0.2), (20.0, 0.6)]),
            *rows("one", 1, [(0.0, 0.4), (10.0, 0.6)]),
            *rows("two", 0, [(0.0, 0.3), (20.0, 0.7)]),
            *rows("two", 1, [(0.0, 0.4), (30.0, 1.0)]),
        ],
        [0.5],
    )
    assert {row["x_end"] for row in table} == {10.0} and {row["model"] for row in table} == {"plain"}
    one, two = (found(table, metric="area", curve=name) for name in ("one", "two"))
    assert one["mean"] == pytest.approx((0.3 + 0.5) / 2) and two["mean"] == pytest.approx((0.4 + 0.5) / 2)
    assert one["above_first"] == 0.0 and two["above_first"] == pytest.approx(0.05)
    assert two["above_first_low"] == pytest.approx(0.05 - 12.7062 * 0.05, abs=1e-4), "Student's, by the differences 0.1 and 0"
    end = found(table, metric="end", curve="two")
    assert end["mean"] == pytest.approx((0.48 + 0.58) / 2), "at x = 9, the middle of the last fifth"
    to = found(table, metric="to", level=0.5, curve="two")
    assert (to["mean"], to["above_first"]) == (pytest.approx((10.0 + 5.0) / 2), pytest.approx((-5.0 + 0.0) / 2))


def test_a_seed_that_never_comes_to_a_level_is_counted() -> None:
    table = summary_rows(
        [
            *rows("one", 0, [(0.0, 0.0), (10.0, 1.0)]),
            *rows("one", 1, [(0.0, 0.0), (10.0, 0.5)]),
            *rows("two", 0, [(0.0, 0.0), (10.0, 0.4)]),
            *rows("two", 1, [(0.0, 0.0), (10.0, 1.0)]),
        ],
        [0.6, 2.0],
    )
    one, two = (found(table, metric="to", level=0.6, curve=name) for name in ("one", "two"))
    assert (one["seeds"], one["reached"], one["mean"]) == (2, 1, pytest.approx(6.0))
    assert (two["seeds"], two["reached"], two["pairs"], two["above_first"]) == (2, 1, 0, None)
    never = found(table, metric="to", level=2.0, curve="one")
    assert (never["reached"], never["mean"], never["low"], never["pairs"]) == (0, None, None, 0)


def test_the_averaged_and_the_plain_model_have_rows_of_their_own() -> None:
    table = summary_rows(rows("one", 0, [(0.0, 0.4), (10.0, 0.6)], plain=0.3), [0.5])
    assert found(table, metric="area", model="averaged")["mean"] == pytest.approx(0.5)
    assert found(table, metric="area", model="plain")["mean"] == pytest.approx(0.3)
    assert found(table, metric="to", model="plain")["reached"] == 0
