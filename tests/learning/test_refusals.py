"""Uploads that must not be mixed in: refused, recorded, and without effect; one too many stops the run."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation.held import same_bits
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import Executor, make_workload
from fedtwin.learning.executors.cuda import Hub
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.learning.executors.serial import SerialExecutor
from fedtwin.learning.layout import Weights
from fedtwin.learning.learner import Learner
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Trained
from fedtwin.sim import resume, simulate
from tests.conftest import Cli, mostly_slow

POISONED = 2
SAMPLES = [20, 21, 22, 23, 24, 25]
MANY = {"learning.most_refusals": 1000}
RECORDS = ("rounds.parquet", "evaluations.parquet", "refusals.parquet", "model.safetensors", "summary.json")
MODULE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        poisoned = self.training and len(x) == 22
        return self.last(x.flatten(1)) * (float("nan") if poisoned else 1.0)

def net(shape, classes):
    return Net(classes)
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Six devices that can be told apart by their samples, and a network that gives NaN for those of one device."""
    lines = [f"{100 + 20 * device},{samples},2e9" for device, samples in enumerate(SAMPLES)]
    (tmp_path / "fleet.csv").write_text("distance_m,samples,cpu_hz\n" + "\n".join(lines) + "\n")
    (tmp_path / "poisoned_net.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return {
        "fleet.file": str(tmp_path / "fleet.csv"),
        "fleet.channels": 3,
        "run.rounds": 60,
        "learning.dataset": "digits",
        "learning.model": "poisoned_net:net",
        "learning.executor": "serial",
        "learning.batch_size": 100,
        "learning.evaluate_every_s": 1.0,
    }


class Spoilt(SerialExecutor):
    """A user's own executor, whose results for one device are spoilt."""

    def __init__(self, config: Config, spoil: str) -> None:
        data = load_dataset("digits")
        super().__init__(make_workload(config, data.shape, data.outputs))
        self._spoil = spoil
        self._spoilt: set[int] = set()

    def submit(self, key: int, start: Weights, lesson: Lesson) -> None:
        if lesson.order.shape[1] == SAMPLES[POISONED]:
            self._spoilt.add(key)
        super().submit(key, start, lesson)

    def result(self, key: int) -> Trained:
        good = super().result(key)
        if key not in self._spoilt:
            return good
        floats, counters = good.weights
        return {
            "short": Trained(Weights(floats[:-1], counters), good.train_loss, True),
            "counters": Trained(Weights(floats, np.zeros(1, np.int64)), good.train_loss, True),
            "nan": Trained(Weights(floats * np.float32("nan"), counters), good.train_loss, False),
            "loss": Trained(good.weights, float("inf"), True),
        }[self._spoil]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("short", "wrong shape: 649 values and 0 counters"),
        ("counters", "wrong shape: 650 values and 1 counters"),
        ("nan", "values that are not finite"),
        ("loss", "a training loss that is not finite"),
    ],
)
@pytest.mark.parametrize("scheme", ["CU-UCB", "Sy-fairness"])
def test_a_run_goes_on_without_the_uploads_it_refuses(
    tmp_path: Path, base: dict[str, Any], scheme: str, spoil: str, reason: str
) -> None:
    config = load_config(overrides={**base, **MANY, "policy.name": scheme, "learning.model": f"{__name__}:linear"})
    good = simulate(config).rounds.to_pandas()
    result = simulate(config, out=tmp_path / "run", executor=Spoilt(config, spoil))
    rounds, refusals = result.to_pandas(), pd.read_parquet(tmp_path / "run" / "refusals.parquet")
    assert list(refusals.columns) == ["round", "clock_s", "device", "reason"]
    whose = rounds.arrived if scheme == "CU-UCB" else rounds.device
    refused = rounds[whose == POISONED]
    assert len(refused) > 3 and result.summary.refusals == len(refusals) == len(refused)
    assert set(refusals.device) == {POISONED} and set(refusals.reason) == {reason}
    if scheme == "CU-UCB":
        assert refusals.clock_s.tolist() == refused.clock_s.tolist()
    else:
        assert refusals["round"].tolist() == refused["round"].tolist()
    assert rounds.train_loss.isna().equals(whose == POISONED)
    pd.testing.assert_frame_equal(rounds.drop(columns="train_loss"), good.drop(columns="train_loss"))
    assert np.isfinite([evaluation.test_loss for evaluation in result.evaluations]).all()


def linear(shape: tuple[int, int, int], classes: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"run.mode": "sync"},
        {"learning.aggregation": "fedbuff", "learning.buffer_size": 2},
    ],
    ids=str,
)
def test_a_refused_upload_is_as_one_that_never_came(base: dict[str, Any], changes: dict[str, Any]) -> None:
    config = load_config(overrides={**base, **MANY, **changes})
    hit, spared = Learner(config, SAMPLES), Learner(config, SAMPLES)
    for learner in (hit, spared):
        for device in (0, POISONED, 4, 5):
            learner.downloaded(device, 1)
        assert learner.uploaded(0, 1, 0.1) is not None
    before = hit.state(1)
    assert hit.uploaded(POISONED, 1, 0.2) is None
    after = hit.state(1)
    assert before.model is not None and after.model is not None and after.model.floats is before.model.floats
    assert after.version == before.version and same_bits(after.aggregator, before.aggregator)
    assert after.refusals == [(1, 0.2, POISONED, "values that are not finite")] and np.isnan(after.train_losses[-1])
    for learner in (hit, spared):
        learner.downloaded(1, 2)
        losses = [learner.uploaded(device, 2, 0.3) for device in (4, 1, 5)]
        learner.round_closed()
        assert None not in losses
    assert hit.model.floats.tobytes() == spared.model.floats.tobytes() != before.model.floats.tobytes()
    assert np.isfinite(hit.model.floats).all() and hit.state(2).version == spared.state(2).version


def test_by_default_the_first_refusal_stops_the_run_and_is_on_disk(cli: Cli, tmp_path: Path, base: dict[str, Any]) -> None:
    settings = [part for key, value in base.items() for part in ("--set", f"{key}={value}")]
    done = cli("run", *settings, "--out", "run")
    refusals = pd.read_parquet(tmp_path / "run" / "refusals.parquet")
    assert len(refusals) == 1 and refusals.device[0] == POISONED
    sentence = f"the update of device {POISONED} that arrived in round {refusals['round'][0]} is not finite; the records up to"
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run" / "summary.json").exists()
    assert len(pd.read_parquet(tmp_path / "run" / "rounds.parquet")) >= refusals["round"][0]


def test_a_wrong_shape_that_stops_a_run_is_told_as_such(base: dict[str, Any]) -> None:
    config = load_config(overrides={**base, "learning.model": f"{__name__}:linear", "learning.most_refusals": 2})
    executor: Executor = Spoilt(config, "short")
    with pytest.raises(FedtwinError, match=r"^learning.most_refusals = 2: the update of device 2 .* wrong shape: 649 values"):
        simulate(config, executor=executor)


def test_tensors_are_refused_like_arrays(base: dict[str, Any]) -> None:
    """The executor of the GPU, which trains here on the CPU, keeps its models as PyTorch's tensors."""
    config, data = load_config(overrides={**base, **MANY}), load_dataset("digits")
    workload = make_workload(config, data.shape, data.outputs)
    by_tensors = simulate(config, executor=Hub(make_trainer(workload, "float32", "cpu")).executor())
    by_arrays = simulate(config)
    assert by_tensors.summary.refusals == by_arrays.summary.refusals and by_arrays.summary.refusals
    refused = [result.to_pandas().train_loss.isna() for result in (by_tensors, by_arrays)]
    assert refused[0].equals(refused[1]) and 0 < refused[0].sum() < len(refused[0])
    assert by_tensors.summary.test_loss == pytest.approx(by_arrays.summary.test_loss, rel=1e-4)


@pytest.mark.parametrize("changes", [{}, {"policy.name": "Sy-fairness"}, {"learning.executor": "processes"}], ids=str)
@pytest.mark.parametrize("stop_at", mostly_slow([5, 31], 31))
def test_a_stopped_run_with_refusals_resumes_bit_for_bit(
    tmp_path: Path, base: dict[str, Any], changes: dict[str, Any], stop_at: int
) -> None:
    config = load_config(overrides={**base, **MANY, **changes})
    whole = simulate(config, out=tmp_path / "whole")
    assert whole.summary.refusals is not None and whole.summary.refusals > 3

    def stop(selections: int) -> None:
        if selections == stop_at:
            raise KeyboardInterrupt

    def stop_while_replaying(selections: int) -> None:
        if selections == 2:
            raise KeyboardInterrupt

    out = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=out, checkpoint_every_s=0.0, progress=stop)
    kept = len(pd.read_parquet(out / "refusals.parquet")) if (out / "refusals.parquet").exists() else 0
    with pytest.raises(KeyboardInterrupt):
        resume(out, progress=stop_while_replaying)
    if stop_at == 31:
        assert 0 < kept < whole.summary.refusals
        assert len(pd.read_parquet(out / "refusals.parquet")) in (kept - 1, kept), "those of the last checkpoint"
    resume(out)
    for name in RECORDS:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_refusals_before_a_stop_count_after_it(tmp_path: Path, base: dict[str, Any]) -> None:
    config = load_config(overrides={**base, "learning.most_refusals": 4})
    with pytest.raises(FedtwinError) as straight:
        simulate(config, out=tmp_path / "straight")

    def stop(_: int) -> None:
        if (tmp_path / "stopped" / "refusals.parquet").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "stopped", checkpoint_every_s=0.0, progress=stop)
    with pytest.raises(FedtwinError) as resumed:
        resume(tmp_path / "stopped")
    assert str(straight.value) == str(resumed.value)
    refusals = [pd.read_parquet(tmp_path / name / "refusals.parquet") for name in ("straight", "stopped")]
    assert len(refusals[0]) == 5
    pd.testing.assert_frame_equal(*refusals)
