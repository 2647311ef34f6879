"""A checkpoint is used as it was written, or not at all: then a sentence says so, and the training is done again."""

import json
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load, save_file

from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.learning.aggregation import load_aggregator
from fedtwin.learning.aggregation.held import Held, Holder, same_bits
from fedtwin.learning.aggregation.refusals import Refusal
from fedtwin.learning.checkpoint import CHECKPOINT_NAME, read_checkpoint, write_checkpoint
from fedtwin.learning.evaluation import Evaluation
from fedtwin.learning.layout import Weights
from fedtwin.learning.learner import LearnerState
from fedtwin.live.run.model import _encoded_state
from fedtwin.sim import resume, simulate

FILES = ("rounds.parquet", "evaluations.parquet", "model.safetensors", "summary.json")


def weights(seed: int) -> Weights:
    return Weights(np.random.default_rng(seed).normal(size=9).astype(np.float32), np.array([seed], np.int64))


def a_state() -> LearnerState:
    return LearnerState(
        round=7, uploads=3, version=2, model=weights(0), train_losses=[0.5, np.nan, 0.25],
        evaluations=[Evaluation(0, 0.0, 0.0, 2.25, 0.125), Evaluation(3, 1.0, 0.5, 2.0, 0.25, 1.5, 0.75)],
        starts={4: weights(1), 1: weights(2)}, versions={4: 1, 1: 2},
        aggregator=Held(["named", "Buffer", [["array", 0, "model"], 2]], [weights(3).floats]),
        refusals=[Refusal(2, 0.75, 1, "values that are not finite")], left_out={4: weights(5).floats, 11: weights(6).floats},
    )  # fmt: skip


def plain(state: LearnerState) -> dict[str, Any]:
    """In a form that can be compared."""

    def of(value: Any) -> Any:
        if isinstance(value, Weights):
            return [part.tobytes() for part in value]
        if isinstance(value, Held):
            return value.form, [part.tobytes() for part in value.arrays]
        if isinstance(value, dict):
            return {key: of(part) for key, part in value.items()}
        return value.tobytes() if isinstance(value, np.ndarray) else repr(value)

    return {part.name: of(getattr(state, part.name)) for part in fields(state)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path, "hash") is None
    write_checkpoint(tmp_path, a_state(), "hash")
    found = read_checkpoint(tmp_path, "hash")
    assert found is not None and plain(found) == plain(a_state())
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT_NAME]


@pytest.mark.parametrize(
    "state", [np.float64(3.5), np.array(2.5, np.float32), np.arange(12.0).reshape(3, 4).T, np.zeros((0, 3))], ids=str
)
def test_an_array_keeps_its_shape(state: Any, tmp_path: Path) -> None:
    """Of no dimension too, which a rule of one's own may add up in; so does what an edge server keeps."""
    holder = Holder(load_aggregator("fedasync"))
    model = np.zeros(5, np.float32)
    held = holder.hold(state, model, np.asarray)
    write_checkpoint(tmp_path, replace(a_state(), aggregator=held), "hash")
    found = read_checkpoint(tmp_path, "hash")
    assert found is not None and same_bits(found.aggregator, held)
    kept = load(_encoded_state(held))
    assert kept["0"].shape == np.shape(state) and np.array_equal(kept["0"], state)
    again = holder.restore(found.aggregator, model)
    assert type(again) is type(state) and np.array_equal(again, state)


def test_models_of_the_same_floats_keep_their_own_counters(tmp_path: Path) -> None:
    """BatchNorm counts batches also where a rule has left the weights what they were."""
    floats = weights(1).floats
    older, newer = (Weights(floats, np.array([count], np.int64)) for count in (3, 8))
    write_checkpoint(tmp_path, replace(a_state(), model=newer, starts={4: older, 1: newer}), "hash")
    found = read_checkpoint(tmp_path, "hash")
    assert found is not None
    held = (found.model, found.starts[4], found.starts[1])
    assert [one.counters.tolist() for one in held if one is not None] == [[8], [3], [8]]


def test_no_flipped_byte_is_ever_used(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, a_state(), "hash")
    path = tmp_path / CHECKPOINT_NAME
    good, expected = path.read_bytes(), plain(a_state())
    rng = np.random.default_rng(0)
    told = 0
    for place in [*range(0, len(good), 5), len(good) - 1]:
        damaged = bytearray(good)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = read_checkpoint(tmp_path, "hash")
        if found is not None:
            assert plain(found) == expected and not caught, "nothing was damaged but a space"
        else:
            assert [(w.category, str(path) in str(w.message)) for w in caught] == [(FedtwinWarning, True)]
            told += 1
    assert told > 0.95 * len(good) / 5


@pytest.mark.parametrize("length", [0, 1, 8, 200, -1, -8])
def test_a_truncated_one_is_told(tmp_path: Path, length: int) -> None:
    write_checkpoint(tmp_path, a_state(), "hash")
    path = tmp_path / CHECKPOINT_NAME
    path.write_bytes(path.read_bytes()[:length])
    with pytest.warns(FedtwinWarning, match=r"checkpoint .* is damaged .*: the training is done again from the start"):
        assert read_checkpoint(tmp_path, "hash") is None


Change = Callable[[dict[str, Any], dict[str, np.ndarray]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda meta, _: meta.pop("refusals"),
        lambda meta, _: meta.pop("holders"),
        lambda meta, _: meta.update(round="seven"),
        lambda meta, _: meta.update(uploads=2),
        lambda meta, _: meta["refusals"].append([1, 2]),
        lambda meta, _: meta["refusals"].clear(),
        lambda _, arrays: arrays.pop("evaluations"),
        lambda _, arrays: arrays.update(evaluations=arrays["evaluations"] + 1),
        lambda _, arrays: arrays.update(train_losses=arrays["train_losses"].astype(np.float32)),
        lambda _, arrays: arrays.update(train_losses=arrays["train_losses"][:, None]),
    ],
)
def test_a_changed_field_is_told_whatever_the_file_format_says(tmp_path: Path, change: Change) -> None:
    write_checkpoint(tmp_path, a_state(), "hash")
    path = tmp_path / CHECKPOINT_NAME
    with safe_open(path, "numpy") as file:
        metadata = dict(file.metadata())
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    meta = json.loads(metadata["fedtwin"])
    change(meta, arrays)
    save_file(arrays, path, {**metadata, "fedtwin": json.dumps(meta)})
    with pytest.warns(FedtwinWarning, match=r"is damaged \(its checksum does not match\)"):
        assert read_checkpoint(tmp_path, "hash") is None


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"fedtwin": "[]"}, {"fedtwin": "{", "sha256": "0"}])
def test_a_foreign_file_is_told(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / CHECKPOINT_NAME, metadata)
    with pytest.warns(FedtwinWarning, match="is damaged"):
        assert read_checkpoint(tmp_path, "hash") is None


def test_one_of_another_configuration_is_told(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, a_state(), "hash")
    with pytest.warns(FedtwinWarning, match="is of another configuration"):
        assert read_checkpoint(tmp_path, "other") is None


def test_one_that_may_not_be_read_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT_NAME).mkdir()
    with pytest.raises(FedtwinError, match="cannot be read"):
        read_checkpoint(tmp_path, "hash")


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        write_checkpoint(tmp_path / "nowhere", a_state(), "hash")


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 40, "learning.evaluate_every_s": 1.0}
    return load_config(overrides={**base, **changes})


def damaged(folder: Path, config: Config) -> None:
    path = folder / CHECKPOINT_NAME
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    assert config


def later(folder: Path, config: Config) -> None:
    """Whole, and of a round that never comes."""
    state = read_checkpoint(folder, config_hash(config))
    assert state is not None
    write_checkpoint(folder, replace(state, round=1000), config_hash(config))


def longer(folder: Path, config: Config) -> None:
    """Whole, and of more uploads than it has losses of."""
    state = read_checkpoint(folder, config_hash(config))
    assert state is not None
    write_checkpoint(folder, replace(state, uploads=state.uploads + 1), config_hash(config))


def smaller(folder: Path, config: Config) -> None:
    """Whole, and of another network."""
    state = read_checkpoint(folder, config_hash(config))
    assert state is not None
    write_checkpoint(folder, replace(state, model=weights(0)), config_hash(config))


def with_an_error(folder: Path, config: Config) -> None:
    """Whole, and of a run that compresses."""
    state = read_checkpoint(folder, config_hash(config))
    assert state is not None
    write_checkpoint(folder, replace(state, left_out={3: weights(0).floats}), config_hash(config))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damaged, "is damaged"),
        (later, "does not fit"),
        (longer, "does not fit"),
        (smaller, "does not fit"),
        (with_an_error, "does not fit"),
    ],
)
def test_a_run_is_done_again_from_the_start(tmp_path: Path, spoil: Callable[[Path, Config], None], words: str) -> None:
    config = training()
    simulate(config, out=tmp_path / "whole")

    def stop(selections: int) -> None:
        if selections == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "stopped", checkpoint_every_s=0.0, progress=stop)
    spoil(tmp_path / "stopped", config)
    with pytest.warns(FedtwinWarning, match=f"{words}.* the training is done again from the start") as caught:
        resume(tmp_path / "stopped")
    assert len(caught) == 1
    for name in FILES:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
