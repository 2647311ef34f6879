"""``fedtwin.plot``: pictures of runs."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.typing import NDArray
from PIL import Image

from fedtwin import open_run, simulate
from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.figures.runs import MOST_POINTS, plot, thinned


def run_in(folder: Path, **settings: object) -> Path:
    over = {key.replace("__", "."): value for key, value in settings.items()}
    simulate(load_config(overrides={"run.rounds": 200, **over}), out=folder)
    return folder


def points(axes: Axes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of the first line."""
    return np.asarray(axes.lines[0].get_xdata(), np.float64), np.asarray(axes.lines[0].get_ydata(), np.float64)


def test_a_run_is_drawn_as_its_records_say(tmp_path: Path) -> None:
    folder = run_in(tmp_path / "one", objective__max_time_s=0.9)
    run = open_run(folder)
    rows, summary = run.to_pandas(), run.summary
    assert summary["declines"] > 0
    picture = plot(run)
    cost, queue, declines = picture.axes
    x, y = points(cost)
    assert y[-1] == pytest.approx(summary["mean_cost"]) and x[-1] == rows["round"].iloc[-1]
    assert list(points(queue)[1]) == list(rows["total_queue"]) and points(declines)[1][-1] == summary["declines"]
    assert picture.get_suptitle() == "CU-UCB, seed 0"
    by_clock, _ = points(plot(folder, against="clock").axes[0])
    assert by_clock[-1] == rows["clock_s"][~rows["declined"]].iloc[-1]
    by_energy, _ = points(plot(folder, against="energy").axes[0])
    assert by_energy[-1] == pytest.approx((rows["compute_j"] + rows["upload_j"]).sum()) and np.all(np.diff(by_energy) > 0)


def test_several_runs_are_lines_with_names_and_accuracy_is_a_panel_where_a_model_is_trained(tmp_path: Path) -> None:
    settings = {"learning__dataset": "digits", "learning__executor": "serial", "run__rounds": 60}
    folders = [run_in(tmp_path / "a", **settings), run_in(tmp_path / "b"), run_in(tmp_path / "c")]
    picture = plot([*folders[:2], open_run(folders[2])], against="clock")
    assert [len(axes.lines) for axes in picture.axes] == [3, 3, 1, 3]
    assert list(points(picture.axes[2])[1]) == open_run(folders[0]).evaluations["test_accuracy"].to_pylist()
    names = [text.get_text() for text in picture.legends[0].get_texts()]
    assert len(set(names)) == 3 and str(folders[1]) in names[1]


def test_a_run_that_has_not_ended_is_drawn_as_far_as_it_is(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(done: int) -> None:
        if done > 90:
            raise StoppedError

    with pytest.raises(StoppedError):
        simulate(load_config(overrides={"run.rounds": 200, "run.engine": "readable"}), out=tmp_path / "run", progress=stop)
    picture = plot(tmp_path / "run")
    assert picture.get_suptitle() == "CU-UCB, seed 0, unfinished" and points(picture.axes[0])[0][-1] >= 90


def test_long_runs_are_thinned_to_points_of_their_own_with_both_ends() -> None:
    x = np.arange(1_000_000.0)
    curve = thinned(x, x**2)
    assert len(curve.x) == len(curve.y) == MOST_POINTS and (curve.x[0], curve.x[-1]) == (0.0, 999_999.0)
    assert np.array_equal(curve.y, curve.x**2) and np.all(np.diff(curve.x) > 0)
    assert len(thinned(x[:MOST_POINTS], x[:MOST_POINTS]).x) == MOST_POINTS


def test_a_picture_is_written_by_the_ending_of_its_name_and_replaces_nothing(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run")
    plot(run, out=tmp_path / "new" / "one.png")
    with Image.open(tmp_path / "new" / "one.png") as picture:
        assert len(set(picture.convert("L").tobytes())) > 10
    plot(run, out=tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_text().lstrip().startswith("<?xml")
    with pytest.raises(FedtwinError, match="exists already"):
        plot(run, out=tmp_path / "one.svg")
    plot(run, out=tmp_path / "one.svg", overwrite=True)
    with pytest.raises(FedtwinError, match=r"must end in \.png or \.svg"):
        plot(run, out=tmp_path / "one.jpeg")


def test_what_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match="is not the folder of a run"):
        plot(tmp_path)
    with pytest.raises(FedtwinError, match="no run to draw"):
        plot([])
    with pytest.raises(FedtwinError, match="against = 'time' is unknown: choose one of round, clock, energy"):
        plot(tmp_path, against="time")  # type: ignore[arg-type]
    run = run_in(tmp_path / "run", run__records=False)
    with pytest.raises(FedtwinError, match=r"rounds\.parquet"):
        plot(run)
    assert json.loads((run / "summary.json").read_text())["rounds"] == 200
