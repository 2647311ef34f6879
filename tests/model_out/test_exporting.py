"""``fedtwin export``: one file, raw samples in, the figure that the run reported out."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedtwin import load_config, simulate
from fedtwin.cli.app import app
from fedtwin.errors import FedtwinError
from fedtwin.learning.card import read_card
from fedtwin.model_out import exporting
from tests.model_out.runs import trained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regression")
    trained(folder, "regression")
    return folder


def test_onnx_gives_the_figure_from_raw_windows(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    run, out = str(folder / "run"), str(tmp_path / "model.onnx")
    app(["export", run, "--format", "onnx", "--out", out, "--data", str(folder / "data"), "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told["rmse"] == pytest.approx(told["reported"], rel=1e-5) and told["largest_difference"] < 1e-5
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    test = np.load(folder / "data" / "test.npz")
    outputs = session.run(["outputs"], {"samples": test["x_test"].astype(np.float32)})[0]
    error = outputs[:, 0] - test["y_test"].reshape(-1)
    assert np.sqrt((error**2).mean()) == pytest.approx(told["reported"], rel=1e-5)
    assert read_card(session.get_modelmeta().custom_metadata_map, "x").test_metric == told["reported"]


def test_a_torch_program_gives_the_figure(folder: Path, tmp_path: Path) -> None:
    found = exporting.export(folder / "run", "torch", tmp_path / "m.pt2", which="best", data=str(folder / "data"))
    assert found.test_metric == pytest.approx(found.card.test_metric, rel=1e-5) and found.card.which == "best"
    with pytest.raises(FedtwinError, match=r"m\.pt2' exists already"):
        exporting.export(folder / "run", "torch", tmp_path / "m.pt2")


def test_images_go_in_as_the_data_has_them(tmp_path: Path) -> None:
    settings = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 30}
    simulate(load_config(overrides=settings), out=tmp_path / "run")
    found = exporting.export(tmp_path / "run", "torch", tmp_path / "m.pt2", data="digits")
    assert found.test_metric == found.card.test_metric


def test_a_file_that_differs_is_not_left(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = exporting._written

    def other(*given: object) -> exporting.Outputs:
        outputs = written(*given)  # type: ignore[arg-type]
        return lambda x: outputs(x) * np.float32(1.001)

    monkeypatch.setattr(exporting, "_written", other)
    with pytest.raises(FedtwinError, match="is not written: on 1 samples it differs from PyTorch"):
        exporting.export(folder / "run", "torch", tmp_path / "m.pt2")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_is_one_sentence(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.extras.find_spec", lambda name: None if name == "onnx" else name)
    with pytest.raises(FedtwinError, match=r"needs onnx: pip install 'fedtwin\[export\]'"):
        exporting.export(folder / "run", "onnx", tmp_path / "m.onnx")
