"""The headline's search: every trial is the headline but for what is searched, and none is run twice."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks import search_headline
from benchmarks.search_headline import COLUMNS, TRIALS, config_of, known

from fedtwin.experiments.batches.gpu import groups_of
from fedtwin.experiments.specs.figure import load_experiment

MEASURED = Path(__file__).parents[2] / "docs" / "results" / "search_headline_full.csv"


def test_trials_share_the_gpu_and_the_settings_of_the_headline() -> None:
    configs = [config_of(trial) for trial in TRIALS]
    assert len(groups_of(configs)) == len({trial.weight_decay for trial in TRIALS})
    headline = load_experiment("headline").configs("full")[0][2]
    for trial, config in zip(TRIALS, configs, strict=True):
        assert config.learning is not None and headline.learning is not None
        assert (config.learning.optimiser, config.learning.augment) == (headline.learning.optimiser, headline.learning.augment)
        assert config.learning.partition == trial.partition
        assert config.run.seed not in range(load_experiment("headline").profiles["full"].seeds)


def test_what_was_measured_is_known_and_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known(MEASURED) <= set(TRIALS)
    path = tmp_path / "search.csv"
    path.write_text(MEASURED.read_text())
    asked: list[Any] = []

    def fails(configs: list[Any]) -> list[tuple[int, Exception]]:
        asked.extend(configs)
        return [(place, RuntimeError("no GPU")) for place in range(len(configs))]

    monkeypatch.setattr(search_headline, "simulate_on_gpu", fails)
    monkeypatch.setattr("sys.argv", ["search_headline", str(path)])
    search_headline.main()
    assert len(asked) == len(TRIALS) - len(known(MEASURED))
    assert path.read_text() == MEASURED.read_text()
    assert path.read_text().splitlines()[0].split(",") == list(COLUMNS)
