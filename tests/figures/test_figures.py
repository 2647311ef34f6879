import csv
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedtwin.experiments.analysis.learning_curves import SEED_COLUMNS, summary_rows
from fedtwin.experiments.batches.batch import run_batch
from fedtwin.experiments.specs.figure import FIGURES, Experiment, load_experiment
from fedtwin.figures.kinds import TableRow
from fedtwin.figures.kinds.accuracy import draw_accuracy
from fedtwin.figures.kinds.total_queue import growth_at_the_end
from fedtwin.figures.save import csv_bytes, save_figure
from fedtwin.figures.table import Tables, figure_jobs, figure_tables
from tests.conftest import mostly_slow

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def tiny(figure: str) -> Experiment:
    experiment = load_experiment(figure).model_dump()
    experiment["profiles"] = {"quick": {"rounds": 120, "seeds": 2}}
    if experiment["kind"] == "theorem-1":
        experiment["schemes"] = experiment["schemes"][:2]
    if experiment["kind"] == "accuracy":
        experiment["config"]["learning"] |= {"dataset": "digits", "model": "mlp", "evaluate_every_s": 1.0}
    return Experiment.model_validate(experiment)


def tables_of(experiment: Experiment) -> Tables:
    return figure_tables(experiment, "quick", run_batch(figure_jobs(experiment, "quick"), workers=1))


def table_of(experiment: Experiment) -> list[TableRow]:
    return tables_of(experiment).rows


@pytest.mark.parametrize("figure", mostly_slow(FIGURES, "3", "4", "5", "regret", "decomposition", "theorem1"))
def test_a_figure_is_a_picture_and_the_numbers_behind_it(figure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.experiments.analysis.stationary.stationary_costs.__defaults__", (60,))
    experiment = tiny(figure)
    tables = tables_of(experiment)
    table = tables.rows
    png, svg, data, *others = save_figure(tmp_path, experiment, "(tiny)", tables)
    assert [path.name for path in others] == [f"figure_{figure}_{name}.csv" for name in tables.others]
    with Image.open(png) as picture:
        assert (
            picture.size in ((1050, 690), (1500, 690), (1500, 1140), (2100, 690))
            and len(set(picture.convert("L").tobytes())) > 10
        )
    assert svg.read_text().lstrip().startswith("<?xml")
    with data.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(table) and list(rows[0]) == list(table[0])
    assert all(float(row["low"]) <= float(row["high"]) for row in rows)


@pytest.mark.slow
def test_accuracy_is_tabulated_on_all_axes_and_at_common_ends() -> None:
    table = table_of(tiny("digits"))
    schemes = tiny("digits").schemes
    for axis in ("time", "energy", "cost"):
        for scheme in schemes:
            rows = [row for row in table if row["axis"] == axis and row["curve"] == scheme]
            assert [row["x"] for row in rows] == sorted(row["x"] for row in rows) and len(rows) > 3
        ends = [row for row in table if row["axis"] == f"common {axis}"]
        assert [row["curve"] for row in ends] == schemes and len({row["x"] for row in ends}) == 1
        assert ends[0]["above_first"] == 0.0
        for row in ends:
            assert row["above_first"] == pytest.approx(row["test_accuracy"] - ends[0]["test_accuracy"])


def test_the_headline_in_the_docs_is_of_the_committed_experiment_and_says_what_its_table_has() -> None:
    with (RESULTS / "figure_headline_seeds.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["axis"] == "time"]
    page = (RESULTS.parent / "results.md").read_text(encoding="utf-8")
    assert list(dict.fromkeys(row["curve"] for row in rows)) == load_experiment("headline").profiles["quick"].schemes
    for curve in dict.fromkeys(row["curve"] for row in rows):
        *_, end = (row for row in rows if row["curve"] == curve)
        reached = f"| {100 * float(end['test_accuracy']):.2f} | {float(end['x']):.0f} s,"
        assert float(end["test_accuracy"]) >= 0.89 and reached in page, (curve, reached)


@pytest.mark.parametrize("average", ["ema", "none"])
def test_the_summary_of_a_figure_is_made_of_the_csv_of_its_seeds(average: str, tmp_path: Path) -> None:
    experiment = tiny("digits").with_changes(["CU-UCB", "Random"], {"run.rounds": 60, "learning.average": average})
    tables = tables_of(experiment)
    *_, seeds, summary = save_figure(tmp_path, experiment, "(tiny)", tables)
    with seeds.open(newline="") as lines:
        read = list(csv.DictReader(lines))
    assert tuple(read[0]) == SEED_COLUMNS and {row["seed"] for row in read} == {"0", "1"}
    assert summary.read_bytes() == csv_bytes(summary_rows(read, experiment.levels))
    assert {row["model"] for row in tables.others["summary"]} == ({"averaged", "plain"} if average == "ema" else {"plain"})
    assert all((row["plain_test_accuracy"] is not None) == (average == "ema") for row in tables.rows)


def test_an_interval_of_accuracies_is_drawn_within_0_and_1() -> None:
    row = {"curve": "one", "test_accuracy": 0.8, "low": -0.4, "high": 2.0, "plain_test_accuracy": None}
    table = [{**row, "axis": axis, "x": x} for axis in ("time", "energy", "cost") for x in (0.0, 1.0)]
    picture = Figure()
    draw_accuracy(picture, tiny("digits"), table)
    shades = [path for axes in picture.axes for shade in axes.collections for path in shade.get_paths()]
    heights = [np.asarray(shade.vertices)[:, 1] for shade in shades]
    assert [(height.min(), height.max()) for height in heights] == [(0.0, 1.0)] * 3


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    experiment = tiny("3")
    tables = tables_of(experiment)
    one, two = (save_figure(tmp_path / name, experiment, "(tiny)", tables) for name in ("one", "two"))
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_a_curve_that_still_grows_is_said_to(tmp_path: Path) -> None:
    table = table_of(tiny("5"))
    for v in (1e4, 3e5):
        rows = [row for row in table if row["v"] == v]
        assert rows[-1]["flattened"] == (abs(rows[-1]["growth_over_last_fifth"]) < 0.02)
    assert save_figure(tmp_path, tiny("5"), "", Tables(table))[1].read_text().count("over the last fifth") >= 4


def test_the_growth_of_a_curve_is_that_of_the_line_through_its_end_on_every_processor() -> None:
    rounds = [10 * k for k in range(1, 101)]
    assert growth_at_the_end(rounds, [3.0 + 0.25 * round_ for round_ in rounds]) == 50 / 203
    assert growth_at_the_end(rounds, [0.1] * 100) == 0.0
    bent = [1.0 + (round_ == 1000) for round_ in rounds]
    slope, offset = np.polyfit(rounds[79:], bent[79:], 1)
    assert growth_at_the_end(rounds, bent) == pytest.approx((1000 * slope + offset) / (800 * slope + offset) - 1, rel=1e-9)
