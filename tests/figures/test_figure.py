"""``fedtwin.figure``: figures from Python, and figures with schemes and settings of one's own."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.text import Text

from fedtwin.errors import FedtwinError, NotFinishedError
from fedtwin.experiments.specs.figure import load_experiment
from fedtwin.figures.figure import figure
from tests.conftest import mostly_slow

FEW = {"run.rounds": 20}
POLICY = "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: view.mean_cost, power='optimal')\n"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(POLICY, encoding="utf-8")
    return tmp_path


def test_a_policy_of_ones_own_stands_among_the_schemes(work: Path) -> None:
    found = figure("3", profile="quick", schemes="CU-UCB,mine:POLICY", settings=FEW, out="pictures", workers=1)
    table = found.to_pandas()
    assert list(table["scheme"].unique()) == ["CU-UCB", "mine:POLICY"] and len(table) == 10
    assert found.note.endswith("20 rounds; changed: schemes CU-UCB, mine:POLICY; run.rounds = 20)")
    assert [path.suffix for path in found.paths] == [".png", ".svg", ".csv"]
    assert sorted(path.name for path in (work / "pictures").iterdir()) == sorted(path.name for path in found.paths)
    assert "mine:POLICY" in found.paths[1].read_text(encoding="utf-8")
    assert isinstance(found.draw(), Picture)
    with pytest.raises(FedtwinError, match="exists already"):
        figure("3", profile="quick", schemes=["CU-UCB", "mine:POLICY"], settings=FEW, out="pictures", workers=1)


def test_a_figure_in_parts_goes_on_in_a_copy_of_its_folder(work: Path) -> None:
    asked: dict[str, Any] = {"profile": "quick", "schemes": "CU-UCB,Random", "settings": FEW, "workers": 1}
    whole = figure("3", **asked, out="whole")
    with pytest.raises(NotFinishedError, match=r"^15 of .* runs are finished and are kept in 'part/\.figure_3-"):
        figure("3", **asked, out="part", runs=15)
    shutil.copytree(work / "part", work / "elsewhere")
    told: list[int] = []
    found = figure("3", **asked, out="elsewhere", progress=told.append, minutes=60)
    assert told[0] == 15 and [path.read_bytes() for path in found.paths] == [path.read_bytes() for path in whole.paths]
    assert sorted(path.name for path in (work / "elsewhere").iterdir()) == sorted(path.name for path in found.paths)
    with pytest.raises(FedtwinError, match="minutes and runs need a folder"):
        figure("3", **asked, minutes=60)


def test_without_a_folder_nothing_is_written(work: Path) -> None:
    found = figure("4", profile="quick", schemes=["CU-UCB"], settings=FEW, workers=1)
    assert found.paths == () and len(found.rows) == 5 and [path.name for path in work.iterdir()] == ["mine.py"]


@pytest.mark.parametrize("name", mostly_slow(["5", "regret", "digits"], "5"))
@pytest.mark.usefixtures("work")
def test_every_kind_of_figure_takes_several_schemes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.experiments.analysis.stationary.stationary_costs.__defaults__", (60,))
    experiment = load_experiment(name)
    settings = {"run.rounds": 60} if name == "digits" else {"run.rounds": 120}
    found = figure(name, profile="quick", schemes="CU-UCB,mine:POLICY", settings=settings, workers=2)
    labels = {text.get_text().partition(",")[0] for axes in found.draw().axes for text in _legend_of(axes)}
    assert {"CU-UCB", "mine:POLICY"} <= labels, labels
    column = "curve" if experiment.kind == "accuracy" else "scheme"
    assert set(found.to_pandas()[column]) == {"CU-UCB", "mine:POLICY"}


def _legend_of(axes: Axes) -> list[Text]:
    legend = axes.get_legend()
    return list(legend.get_texts()) if legend is not None else []


def test_a_changed_figure_has_a_name_of_its_own_and_the_same_one_the_usual() -> None:
    usual = load_experiment("3")
    names = {
        usual.with_changes(["CU-UCB"], None).figure,
        usual.with_changes(["CU-UCB", "Random"], None).figure,
        usual.with_changes(["Random", "CU-UCB"], None).figure,
        usual.with_changes(None, {"radio.max_power_w": 0.5}).figure,
        usual.with_changes(None, {"radio.max_power_w": 0.6}).figure,
    }
    assert len(names) == 5 and all(name.startswith("3-") for name in names)
    assert usual.with_changes(list(usual.schemes), {}) is usual and usual.with_changes() is usual


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("3", {"settings": {"objective.min_mean_samples": 1.0}}, "it is what the figure sweeps"),
        ("3", {"settings": {"run.seed": 4}}, "a profile says how many seeds"),
        ("3", {"settings": {"policy.name": "random"}}, "say --schemes instead"),
        ("3", {"settings": {"run.rounds": 3}}, "run.rounds = 3 is not allowed in a figure"),
        ("3", {"settings": {"run.round": 3}}, "run.round is not a setting"),
        ("3", {"schemes": "CU-UCB,cu-ucb"}, "have the same one twice"),
        ("3", {"schemes": "CU-UCB,nobody:POLICY"}, "cannot be loaded"),
        ("3", {"schemes": ","}, "names none"),
        ("regret", {"schemes": "Sy-fairness"}, "Sy-fairness is synchronous"),
        ("10", {}, "figure '10' is unknown"),
        ("3", {"profile": "slow"}, "profile = 'slow' is unknown"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence_before_any_run(
    name: str, options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        figure(name, out=tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
