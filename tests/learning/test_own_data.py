"""Data of the user's own: rows and windows, as .npz or Parquet, one file per device or an array that says whose a sample is."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtwin.config import LearningConfig, build_config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import load_dataset
from fedtwin.learning.models import build_model
from fedtwin.learning.normalisation import Normalisation, moments_of, normalisation_of
from fedtwin.learning.shares import shares_of
from tests.conftest import Cli

rng = np.random.default_rng(5)
WINDOWS = LearningConfig(model="tcn")


def parquet(path: Path, **columns: object) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_windows_are_normalised_by_channel_and_rows_by_feature(tmp_path: Path) -> None:
    x = rng.normal(size=(30, 2, 16)) * [[1.0], [50.0]] + [[0.0], [7.0]]
    np.savez(tmp_path / "w.npz", x_train=x, y_train=np.arange(30) % 3, x_test=x, y_test=np.arange(30) % 3)
    windows = load_dataset(str(tmp_path / "w.npz"), WINDOWS)
    assert (windows.kind, windows.shape, windows.outputs) == ("windows", (2, 16), 3)
    assert windows.normalisation().mean == pytest.approx(x.mean((0, 2))) and windows.normalisation().std == pytest.approx(
        x.std((0, 2))
    )
    assert load_dataset(str(tmp_path / "w.npz")).shape == (1, 2, 16)  # three axes are an image, unless somebody says otherwise
    assert load_dataset(str(tmp_path / "w.npz"), LearningConfig(input="windows")).shape == (2, 16)
    np.savez(tmp_path / "r.npz", x_train=x[:, :, 0].astype(np.int16), y_train=rng.normal(size=30))
    rows = load_dataset(str(tmp_path / "r.npz"), LearningConfig(task="regression"), ("train",))
    assert (rows.kind, rows.shape, rows.outputs, len(rows.x_test)) == ("rows", (2,), 1, 0)
    assert len(rows.normalisation().mean) == 2 and len(rows.normalisation().target_std) == 1
    with pytest.raises(FedtwinError, match="has no array x_test, y_test"):
        load_dataset(str(tmp_path / "r.npz"), LearningConfig(task="regression"))


def test_networks_for_any_shape() -> None:
    for name, shape in (
        ("linear", (5,)),
        ("mlp", (5,)),
        ("mlp", (2, 16)),
        ("tcn", (2, 16)),
        ("tcn", (1, 300)),
        ("mlp", (3, 4, 4)),
    ):
        build_model(name, shape, 2, 0)
    for name, shape, sentence in (
        ("tcn", (5,), r"'tcn' does not take rows of shape \(5,\): windows .* are needed"),
        ("tcn", (1, 8, 8), "does not take images"),
        ("small-cnn", (2, 16), r"'small-cnn' does not take windows of shape \(2, 16\): images"),
    ):
        with pytest.raises(FedtwinError, match=sentence):
            build_model(name, shape, 2, 0)


def test_parquet_has_rows_or_windows(tmp_path: Path) -> None:
    flat = parquet(tmp_path / "flat.parquet", temperature=[20.5, 21.0], load=[1, 2], target=[0, 1], client=["b", "a"])
    data = load_dataset(flat, LearningConfig(), ("train",))
    assert data.x_train.tolist() == [[1.0, 20.5], [2.0, 21.0]] and data.y_train.tolist() == [0, 1]  # features by name
    assert data.clients is not None and data.clients.tolist() == [1, 0]
    lists = parquet(tmp_path / "test.parquet", x=[[1.0, 2.0, 3.0]], y=[[4.0, 5.0, 6.0]], target_a=[1.0], target_b=[0.0])
    data = load_dataset(lists, LearningConfig(task="multilabel", model="tcn"), ("test",))
    assert data.x_test.tolist() == [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]] and data.y_test.tolist() == [[1.0, 0.0]]
    for columns, sentence in (
        ({"a": [1.0]}, "a column target and columns of features are needed"),
        ({"a": [[1.0], [1.0, 2.0]], "target": [0, 1]}, "the lists in the column a differ in length"),
        ({"a": ["x"], "target": [0]}, "the column a holds string: numbers, or lists of them"),
        ({"a": [1.0, None], "target": [0, 1]}, "the column a has rows without a value"),
        ({"a": [1.0], "b": [[1.0]], "target": [0]}, "the columns a and b differ in shape"),
    ):
        with pytest.raises(FedtwinError, match=sentence):
            load_dataset(parquet(tmp_path / "bad.parquet", **columns), LearningConfig(), ("train",))


def test_one_file_per_device_is_a_natural_split(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name, count in (("board-10", 5), ("board-2", 3)):
        np.savez(folder / f"{name}.npz", x_train=rng.normal(size=(count, 4)), y_train=np.arange(count) % 2)
    parquet(folder / "test.parquet", **{f"f{k}": rng.normal(size=6) for k in range(4)}, target=np.arange(6) % 2)
    config = build_config(
        {}, {"fleet.devices": 2, "fleet.channels": 1, "learning.dataset": str(folder), "learning.partition": "natural"}
    )
    assert config.learning is not None
    data = load_dataset(str(folder), config.learning)
    assert [len(share) for share in shares_of(config, data)] == [3, 5] and len(data.x_test) == 6
    with pytest.raises(FedtwinError, match=r"has 2 clients, and fleet\.devices = 3"):
        shares_of(config, data, 3)
    before = config_hash(config)
    np.savez(folder / "board-2.npz", x_train=rng.normal(size=(4, 4)), y_train=np.arange(4) % 2)
    assert config_hash(config) != before
    np.savez(folder / "board-3.npz", x_train=rng.normal(size=(4, 3)), y_train=np.arange(4) % 2)
    with pytest.raises(FedtwinError, match=r"'board-3.npz': x_train has samples of shape \(3,\), and \(4,\) in 'board-2.npz'"):
        load_dataset(str(folder), config.learning)
    (tmp_path / "fleet.toml").write_text("[learning]\ndataset = 'fleet/'\n", encoding="utf-8")
    seen = load_config(tmp_path / "fleet.toml").learning
    assert seen is not None and seen.dataset == str(folder)


def test_settings_of_a_plant_with_a_test_set_only_can_be_checked(cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "edge.npz", x_test=rng.normal(size=(9, 2)), y_test=np.arange(9) % 2)
    (tmp_path / "plant.toml").write_text("[learning]\ndataset = 'edge.npz'\n", encoding="utf-8")
    assert cli("config", "check", "plant.toml").returncode == 0
    done = cli("run", "plant.toml")
    assert done.returncode == 2 and "has no array x_train, y_train" in done.stderr


def test_what_has_no_clients_has_no_natural_split() -> None:
    config = build_config({}, {"learning.partition": "natural"})
    with pytest.raises(FedtwinError, match="'digits' has no array client, nor a file per device"):
        shares_of(config, load_dataset("digits"))


def test_classes_that_a_board_lacks_are_counted_by_the_runs_settings(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x_train=rng.normal(size=(4, 3)), y_train=[0, 1, 0, 1])
    assert load_dataset(str(tmp_path / "b.npz"), LearningConfig(outputs=5), ("train",)).outputs == 5
    with pytest.raises(FedtwinError, match=r"has the label 1, and learning\.outputs = 1"):
        load_dataset(str(tmp_path / "b.npz"), LearningConfig(outputs=1), ("train",))


def test_the_moments_of_a_fleet_are_those_of_all_its_samples() -> None:
    parts = [rng.normal(size=(count, 3, 10)) * scale + 1e4 for count, scale in ((50, 1.0), (7, 30.0), (1, 2.0))]
    whole = np.concatenate(parts)
    found = normalisation_of([moments_of(part) for part in parts])
    assert found.mean == pytest.approx(whole.mean((0, 2)), rel=1e-12) and found.std == pytest.approx(
        whole.std((0, 2)), rel=1e-9
    )
    assert moments_of(np.full((5, 1), 3.0)).std == (1.0,)  # nothing to scale
    assert Normalisation.from_json(found.as_json()) == found


def test_a_normalisation_that_is_given_counts_and_must_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", x_train=rng.normal(size=(9, 2)), y_train=np.arange(9) % 2)
    given = LearningConfig(normalisation={"mean": [1.0, 2.0], "std": [3.0, 4.0]})
    assert load_dataset(str(tmp_path / "r.npz"), given, ("train",)).normalisation().std == (3.0, 4.0)
    with pytest.raises(FedtwinError, match=r"normalises 1 channels .* samples of shape \(2,\)"):
        load_dataset(str(tmp_path / "r.npz"), LearningConfig(normalisation={"mean": [1.0], "std": [3.0]}), ("train",))
