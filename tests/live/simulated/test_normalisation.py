"""Whenever the run's normalisation is known, everybody who trains has it."""

from pathlib import Path
from typing import Any

from fedtwin.live import Update
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.run import events
from fedtwin.live.wire.protocol import Channels, Moments
from tests.live.simulated.fleet import CPU_HZ, Fleet, MarkingTrainer
from tests.live.simulated.life import Life
from tests.live.simulated.loop import run_virtually
from tests.live.simulated.stations import SERVERS


class NormalisingTrainer(MarkingTrainer):
    """Remembers by what it has trained."""

    def __init__(self, moments: Moments | None) -> None:
        self.moments, self.by = moments, list[dict[str, list[float]] | None]()
        self._normalisation: dict[str, list[float]] | None = None

    def normalise(self, normalisation: dict[str, list[float]]) -> None:
        self._normalisation = normalisation

    def train(self, model: bytes, round_: int) -> Update:
        self.by.append(self._normalisation)
        return super().train(model, round_)


class Boards(Fleet):
    """The second joins when it is started, and brings the run's normalisation."""

    trainers: dict[str, NormalisingTrainer]

    async def _device(self, life: Life) -> bool:
        name = life.process.name
        await Agent(AgentOptions(name, SERVERS, self.trainers[name], cpu_hz=CPU_HZ, ports=life.ports)).run()
        return False


def test_who_trains_already_normalises_by_what_a_later_board_brings(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"live.start_with": 1, "fleet.channels": 2}
    fleet = Boards(tmp_path, 1, devices=2, rounds=10_000, **settings)
    told = Moments(samples=Channels(count=4.0, mean=[50.0], squares=[36.0]))
    early, late = NormalisingTrainer(None), NormalisingTrainer(told)
    fleet.trainers = {"device-0": early, "device-1": late}

    async def main() -> None:
        fleet.edge.start()
        fleet.devices[0].start()
        try:
            assert await fleet.until(lambda: len(early.by) > 3, 60.0)
            fleet.devices[1].start()
            assert await fleet.until(lambda: len(late.by) > 3, 60.0)
            before = len(early.by)
            assert await fleet.until(lambda: len(early.by) > before + 3, 60.0)
        finally:
            await fleet.stop()

    run_virtually(main(), fleet.loop)
    normalised = [event.normalisation for _, event in fleet.happened if isinstance(event, events.Normalised)]
    assert normalised == [{"mean": [50.0], "std": [3.0]}]
    assert early.by[0] is None and early.by[-1] == late.by[0] == normalised[0]
