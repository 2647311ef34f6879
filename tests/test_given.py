"""Whatever of the wrong kind is given from Python is one sentence, which names it."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtwin
from fedtwin import FedtwinError, Run, open_run, simulate
from fedtwin.sim import resume

API: Any = fedtwin
ANY_RESUME: Any = resume
FEW = {"run.rounds": 20}
SPEC = {"rounds": 5, "seeds": 1, "schemes": ["Random"]}
WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "open_run": (lambda _: API.open_run(5), r"^folder = 5 is a int: a path is needed\.$"),
    "open_run of nothing": (lambda _: API.open_run(None), "folder = None is a NoneType"),
    "open_run of bytes": (lambda _: API.open_run(b"x"), "folder = b'x' is a bytes"),
    "resume": (lambda _: ANY_RESUME(5), "folder = 5 is a int"),
    "seconds": (lambda run: run.twin(seconds="x"), r"twin\(seconds\) = 'x' is not allowed: it must be 0 or more seconds"),
    "seconds of a list": (lambda run: run.twin(seconds=[1]), "seconds"),
    "seconds that are a truth": (lambda run: run.twin(seconds=True), "seconds"),
    "seconds of an array": (lambda run: run.twin(seconds=np.array([1, 2])), "seconds"),
    "round of an array": (lambda run: run.twin(round=np.array([1, 2])), "a round is a whole number"),
    "every_s": (lambda run: run.follow(every_s="x"), r"follow\(every_s\) = 'x' is not allowed"),
    "every_s of nothing": (lambda run: run.follow(every_s=None), r"follow\(every_s\) = None is not allowed"),
    "timeout_s": (lambda run: run.follow(timeout_s="x"), r"follow\(timeout_s\) = 'x' is not allowed"),
    "plot": (lambda _: API.plot(5), "runs = 5 is a int: a run, its folder or several of them is needed"),
    "plot of one of several": (lambda _: API.plot([5]), "folder = 5 is a int: a path is needed"),
    "plot to": (lambda run: API.plot(run, out=5), "out = 5 is a int: a path is needed"),
    "plot against": (lambda run: API.plot(run, against=[]), r"against = \[\] is unknown"),
    "no folders": (lambda _: API.compare([]), "There is no run to compare: name one folder or more"),
    "compare of a number": (lambda _: API.compare([5]), "folder = 5 is a int"),
    "metrics": (lambda _: API.compare(FEW, metrics=5), "metrics = 5 is a int: a name or a list of names is needed"),
    "metrics in a list": (lambda _: API.compare(FEW, metrics=[5]), r"metrics = \[5\] is a list: a name or a list of names"),
    "settings": (lambda _: API.compare(FEW, settings=5), "settings = 5 is a int: a dictionary of settings is needed"),
    "workers": (lambda _: API.compare(FEW, workers="x"), "workers = 'x' is not allowed: it must be a number of processes"),
    "no worker": (lambda _: API.compare(FEW, workers=0), "workers = 0 is not allowed: it must be a number of processes"),
    "ray": (lambda _: API.compare(FEW, ray=5), "ray = 5 is a int: an address, auto or local is needed"),
    "seeds": (lambda _: API.compare(FEW, seeds=1.5), r"seeds = 1\.5 is not allowed"),
    "schemes": (lambda _: API.compare(FEW, schemes=5), "schemes = 5 is a int: a name or a list of schemes is needed"),
    "comparison to": (lambda _: API.compare(FEW, out=5), "out = 5 is a int: a path is needed"),
    "out": (lambda _: API.simulate(FEW, out=5), "out = 5 is a int: a path is needed"),
    "policy": (lambda _: API.simulate(FEW, policy=5), "policy = 5 is a int, not a name nor a fedtwin.Policy"),
    "progress": (lambda _: API.simulate(FEW, progress=5), "progress = 5 is a int: a function is needed"),
    "executor": (lambda _: API.simulate(FEW, executor=5), "executor = 5 is a int: an executor of fedtwin.learning is needed"),
    "trace": (lambda _: API.simulate(FEW, trace="x"), "trace = 'x' is a str: True or False is needed"),
    "records": (lambda _: API.simulate(FEW, records=0), "records = 0 is a int: True or False is needed"),
    "aggregation": (lambda _: API.simulate(FEW, aggregation=5), "aggregation = 5 is a int, not a name nor a fedtwin.learning"),
    "progress of compare": (lambda _: API.compare(FEW, progress=5), "progress = 5 is a int: True, False or a function"),
    "progress of sweep": (lambda _: API.sweep(SPEC, progress=5), "progress = 5 is a int: True, False or a function"),
    "checkpoint_every_s": (lambda _: API.simulate(FEW, checkpoint_every_s="x"), "checkpoint_every_s = 'x' is not allowed"),
    "path of settings": (lambda _: API.load_config(5), "path = 5 is a int: a path is needed"),
    "overrides": (lambda _: API.load_config(overrides=5), "overrides = 5 is a int: a dictionary of settings is needed"),
    "names of overrides": (lambda _: API.load_config(overrides={5: 5}), "5 = 5 is not a setting: write section.key=value"),
    "sweep": (lambda _: API.sweep(5), "spec = 5 is a int: a dictionary or the path of a TOML file is needed"),
    "sweep to": (lambda _: API.sweep(SPEC, out=5), "out = 5 is a int: a path is needed"),
    "sweep by": (lambda _: API.sweep(SPEC, workers="x"), "workers = 'x' is not allowed"),
    "a path that is too long": (lambda _: open_run("x" * 5000), "folder = 'x{60}…' is too long for a path on this system"),
    "a path that is none": (lambda _: open_run("a\0b"), "is no path: (lstat: )?embedded null"),
    "figure to": (lambda _: API.figure("3", out=5), "out = 5 is a int: a path is needed"),
    "figure with": (lambda _: API.figure("3", settings=5), "settings = 5 is a int: a dictionary of settings is needed"),
    "figure of": (lambda _: API.figure("3", schemes=5), "schemes = 5 is a int: a name or a list of schemes is needed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("given") / "run"
    simulate(FEW, out=folder)
    return open_run(folder)


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_kind_is_one_sentence(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    ask, sentence = WRONG[name]
    with pytest.raises(FedtwinError, match=sentence) as told:
        ask(run)
    assert str(told.value).endswith(".") and "\n" not in str(told.value) and not list(tmp_path.iterdir())


def test_numbers_of_numpy_and_paths_of_any_kind_are_fine(run: Run, tmp_path: Path) -> None:
    class Place:
        def __fspath__(self) -> str:
            return str(tmp_path / "there")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(FEW, out=Place(), checkpoint_every_s=np.float32(3))  # type: ignore[arg-type]
    assert open_run(Place()).finished and run.twin(seconds=np.float64(0.5)) == run.twin(seconds=0.5)  # type: ignore[arg-type]
    assert fedtwin.compare(open_run(tmp_path / "there")).summaries


def test_a_place_that_is_taken_is_told_in_words_of_the_caller_too(run: Run, tmp_path: Path) -> None:
    """Each sentence serves the command line and Python: an option alone would be of no use to the latter."""
    sweep_of = {**SPEC, "rounds": 5}
    fedtwin.sweep(sweep_of, out=tmp_path / "sweep", workers=1)
    fedtwin.plot(run, out=tmp_path / "run.png")
    taken: dict[Callable[[], Any], str] = {
        lambda: simulate(FEW, out=run.path): "out = .* exists already",
        lambda: resume(run.path): "cannot be resumed: this run is finished",
        lambda: fedtwin.sweep(sweep_of, out=tmp_path / "sweep"): r"out = .*or say --overwrite \(overwrite=True\)",
        lambda: fedtwin.plot(run, out=tmp_path / "run.png"): r"or say --overwrite \(overwrite=True\)",
        lambda: fedtwin.plot(run, out=tmp_path / "run.gif"): r"^out = .*gif' is no picture",
    }
    for ask, sentence in taken.items():
        with pytest.raises(FedtwinError, match=sentence) as told:
            ask()
        assert not str(told.value).startswith("--")
