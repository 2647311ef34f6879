"""Samples of a device's own: everybody normalises by what the run gathered, and data that grows or shrinks is an event."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError
from fedtwin.live import Update
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.device.torch_trainer import TorchTrainer
from fedtwin.live.device.trainers import TrainingError
from fedtwin.live.run import events
from fedtwin.live.server.evaluator import Evaluator, initial_model
from fedtwin.live.wire.protocol import Channels, Moments
from tests.live.simulated.fleet import CPU_HZ, Fleet, MarkingTrainer
from tests.live.simulated.life import Life, Supervised
from tests.live.simulated.loop import run_virtually
from tests.live.simulated.said import listening
from tests.live.simulated.stations import SERVERS

MEANS = {"device-0": 1.0, "device-1": 3.0, "device-2": 5.0, "late": 100.0}


class OwnSamples(MarkingTrainer):
    """Ten samples of one mean and no deviation; they become ``next_samples``."""

    def __init__(self, mean: float) -> None:
        self._mean, self.samples = mean, 10
        self.next_samples: int | None = None
        self.normalised_by: list[dict[str, list[float]]] = []
        self.trained_on: list[int] = []

    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return self.samples

    @property
    def moments(self) -> Moments | None:
        return Moments(samples=Channels(count=10.0, mean=[self._mean], squares=[0.0]))

    def normalise(self, normalisation: dict[str, list[float]]) -> None:
        self.normalised_by.append(normalisation)

    def refreshed(self) -> int | None:
        return self.next_samples

    def take_refreshed(self) -> None:
        assert self.next_samples is not None
        self.samples, self.next_samples = self.next_samples, None

    def train(self, model: bytes, round_: int) -> Update:
        assert self.normalised_by, "never by its own, and never before the run's is known"
        self.trained_on.append(self.samples)
        return super().train(model, round_)


class TrainsOnFewer(OwnSamples):
    def __init__(self, mean: float) -> None:
        super().__init__(mean)
        self.samples -= 3


class OfTheDataSet(OwnSamples):
    """A device that holds a share of the run's data set, and tells nothing of it."""

    @property
    def moments(self) -> Moments | None:
        return None


class OwnFleet(Fleet):
    def __init__(self, folder: Path, seed: int, **settings: Any) -> None:
        super().__init__(folder, seed, devices=3, rounds=40, **settings)
        self.trainers = {name: OwnSamples(mean) for name, mean in MEANS.items()}

    async def _device(self, life: Life) -> bool:
        name = life.process.name
        await Agent(AgentOptions(name, SERVERS, self.trainers[name], cpu_hz=CPU_HZ, ports=life.ports)).run()
        return False

    def events(self, kind: type[events.Event]) -> list[events.Event]:
        return [event for _, event in self.happened if isinstance(event, kind)]


def test_the_runs_normalisation_is_gathered_once_and_kept_for_late_joiners_and_after_a_crash(tmp_path: Path) -> None:

    fleet = OwnFleet(tmp_path, 5)
    late = Supervised(fleet, "late", fleet._device)

    async def main() -> None:
        fleet.start()
        try:
            assert await fleet.until(lambda: len(fleet.events(events.Applied)) > 5, 60.0)
            fleet.edge.life.kill()
            late.start()
            assert await fleet.until(lambda: bool(fleet.trainers["late"].trained_on) or fleet.finished, 200.0)
            assert await fleet.until(lambda: fleet.finished, 300.0)
        finally:
            await late.stop()
            await fleet.stop()

    with listening(fleet.loop):
        run_virtually(main(), fleet.loop)
    (gathered,) = fleet.events(events.Normalised)
    assert isinstance(gathered, events.Normalised) and sorted(gathered.names) == ["device-0", "device-1", "device-2"]
    assert gathered.normalisation["mean"] == [3.0] and gathered.normalisation["std"] == pytest.approx([np.sqrt(8.0 / 3.0)])
    for trainer in fleet.trainers.values():
        assert trainer.normalised_by and all(one == gathered.normalisation for one in trainer.normalised_by)


def test_who_tells_nothing_of_its_samples_is_normalised_by_the_others_too(tmp_path: Path) -> None:
    """It has joined before they were heard, and asks before it trains; where nobody tells anything, it trains by its own."""
    mixed = OwnFleet(tmp_path / "mixed", 7)
    mixed.trainers["device-1"] = OfTheDataSet(3.0)

    async def main() -> None:
        mixed.start()
        try:
            assert await mixed.until(lambda: mixed.finished, 300.0)
        finally:
            await mixed.stop()

    with listening(mixed.loop):
        run_virtually(main(), mixed.loop)
    (gathered,) = mixed.events(events.Normalised)
    assert isinstance(gathered, events.Normalised) and sorted(gathered.names) == ["device-0", "device-2"]
    silent = mixed.trainers["device-1"]
    assert silent.trained_on and silent.normalised_by == [gathered.normalisation]


def test_where_nobody_tells_anything_everyone_trains_by_its_own(tmp_path: Path) -> None:
    alone = OwnFleet(tmp_path, 8)
    for name, mean in MEANS.items():
        alone.trainers[name] = OfTheDataSet(mean)
        alone.trainers[name].normalised_by.append({})  # so that it may train

    async def main() -> None:
        alone.start()
        try:
            assert await alone.until(lambda: alone.finished, 300.0)
        finally:
            await alone.stop()

    with listening(alone.loop):
        run_virtually(main(), alone.loop)
    assert not alone.events(events.Normalised) and len(alone.events(events.Applied)) >= 40
    assert all(trainer.normalised_by == [{}] for trainer in alone.trainers.values())


def test_samples_that_grow_and_shrink_are_events(tmp_path: Path) -> None:
    fleet = OwnFleet(tmp_path, 6)
    grows = fleet.trainers["device-1"]

    async def main() -> None:
        fleet.start()
        try:
            assert await fleet.until(lambda: len(grows.trained_on) > 1, 60.0)
            for samples in (17, 4):
                grows.next_samples = samples
                assert await fleet.until(lambda samples=samples: samples in grows.trained_on, 300.0)  # type: ignore[misc]
        finally:
            await fleet.stop()

    with listening(fleet.loop) as log:
        run_virtually(main(), fleet.loop)
    resized = [(event.name, event.samples) for event in fleet.events(events.Resized) if isinstance(event, events.Resized)]
    assert resized == [("device-1", 17), ("device-1", 4)]
    sent = [event for event in fleet.events(events.Dispatched) if isinstance(event, events.Dispatched)]
    assert {17, 4} <= {event.samples for event in sent if event.device == 1}
    assert not fleet.events(events.Refused) and not fleet.events(events.Quarantined)
    assert [said.fields["samples"] for said in log.said if said.message == "has other samples now"] == [17, 4]


def test_two_devices_of_one_name_are_asked_for(tmp_path: Path) -> None:
    """As after a memory card was copied: the samples of one are not those that the other has announced."""
    fleet, heard = OwnFleet(tmp_path, 9, **{"run.rounds": 400}), TrainsOnFewer(1.0)

    async def clone(life: Life) -> bool:
        await Agent(AgentOptions("device-1", SERVERS, heard, cpu_hz=CPU_HZ, ports=life.ports)).run()
        return False

    other = Supervised(fleet, "device-1", clone)

    async def main() -> None:
        fleet.start()
        try:
            assert await fleet.until(lambda: len(fleet.events(events.Applied)) > 5, 60.0)
            other.start()
            assert await fleet.until(lambda: bool(fleet.events(events.Quarantined)) or fleet.finished, 300.0)
        finally:
            await other.stop()
            await fleet.stop()

    with listening(fleet.loop) as log:
        run_virtually(main(), fleet.loop)
    changed = [said for said in log.said if said.message == "has other samples now"]
    assert changed and "two devices of this name?" in str(changed[0])
    reasons = [event.reason for event in fleet.events(events.Quarantined) if isinstance(event, events.Quarantined)]
    assert reasons and all(reason.endswith("were announced: are there two devices of this name?") for reason in reasons)


@pytest.mark.parametrize("mean", [3.0, 1e30])
def test_samples_in_another_unit_are_told_of_once(tmp_path: Path, mean: float) -> None:
    fleet = OwnFleet(tmp_path, 5)
    fleet.trainers["device-1"] = OwnSamples(mean)

    async def main() -> None:
        fleet.start()
        try:
            assert await fleet.until(lambda: len(fleet.events(events.Applied)) > 5, 60.0)
        finally:
            await fleet.stop()

    with listening(fleet.loop) as log:
        run_virtually(main(), fleet.loop)
    told = [said for said in log.said if said.level == "error"]
    assert len(fleet.events(events.Normalised)) == 1
    assert [(said.fields["device"], said.fields["feature"]) for said in told] == (
        [("device-1", "channel 0")] if mean > 1e3 else []
    )
    assert all("as if in another unit" in said.message for said in told)


# PyTorch's


def board(path: Path, count: int, mean: float, shape: tuple[int, ...] = (3,)) -> str:
    rng = np.random.default_rng(count)
    np.savez(path, x_train=rng.normal(size=(count, *shape)) + mean, y_train=np.arange(count) % 2)
    return str(path)


def config_of(tmp_path: Path, **more: object) -> Config:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "test.npz", x_test=rng.normal(size=(30, 3)), y_test=np.arange(30) % 3)
    given = {"learning.dataset": str(tmp_path / "test.npz"), "learning.outputs": 3, "fleet.samples_max": 100, **more}
    return build_config({}, given)


def test_a_board_needs_no_test_set_nor_every_class_and_never_normalises_by_its_own(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    model = initial_model(config)
    trainer = TorchTrainer("b", board(tmp_path / "b.npz", 40, 7.0), None, None)
    assert trainer.prepare(config) == 40
    assert trainer.moments is not None and trainer.moments.samples.mean == pytest.approx([7.0] * 3, abs=0.5)
    with pytest.raises(TrainingError, match="the run's normalisation is not known"):
        trainer.train(model, 1)
    of_run = {"mean": [0.0] * 3, "std": [1.0] * 3}
    trainer.normalise(of_run)
    trained = trainer.train(model, 1)
    given = TorchTrainer("b", str(tmp_path / "b.npz"), None, None)
    assert given.prepare(config_of(tmp_path, **{"learning.normalisation": of_run})) == 40 and given.moments is None
    assert given.train(model, 1) == trained
    trainer.normalise({"mean": [7.0] * 3, "std": [1.0] * 3})
    assert trainer.train(model, 1) != trained


def test_a_file_that_changes_is_read_again_and_a_bad_one_is_not_used(tmp_path: Path) -> None:
    trainer = TorchTrainer("b", board(tmp_path / "b.npz", 20, 0.0), None, None)
    assert trainer.prepare(config_of(tmp_path)) == 20 and trainer.refreshed() is None
    trainer.normalise({"mean": [0.0] * 3, "std": [1.0] * 3})
    board(tmp_path / "b.npz", 30, 0.0)
    assert trainer.refreshed() == 30
    trainer.take_refreshed()
    assert trainer.train(initial_model(config_of(tmp_path)), 1).train_loss is not None and trainer.refreshed() is None
    board(tmp_path / "b.npz", 31, 0.0, (4,))
    with pytest.raises(FedtwinError, match=r"has samples of shape \(4,\) now, and \(3,\) before"):
        trainer.refreshed()
    (tmp_path / "b.npz").write_text("half")
    with pytest.raises(FedtwinError, match=r"not a \.npz"):
        trainer.refreshed()
    assert trainer.refreshed() is None, "it is told once"


def test_an_evaluator_judges_by_the_runs_normalisation_and_metric(tmp_path: Path) -> None:
    config = config_of(tmp_path, **{"learning.metric": "f1"})
    worker, settings = Evaluator([], "main"), config.model_dump(mode="json", exclude_none=True)
    model = initial_model(config)
    with pytest.raises(FedtwinError, match="no x_train to normalise by, and the run has no normalisation"):
        worker._evaluate((settings, None), model)
    found = worker._evaluate((settings, {"mean": [0.0] * 3, "std": [1.0] * 3}), model)
    assert found.test_accuracy is None and found.test_metric is not None
    assert worker._evaluate((settings, {"mean": [9.0] * 3, "std": [1.0] * 3}), model) != found
