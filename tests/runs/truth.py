"""The twin of a simulated run as its coordinator had it, at every change: what reading the records must give back."""

import math
from dataclasses import dataclass, field

from fedtwin.config import Config
from fedtwin.coordinator import Coordinator
from fedtwin.sim import asynchronous, synchronous
from fedtwin.sim.engine import Engine
from fedtwin.twin import Twin


@dataclass
class Truth:
    """``at_round[t]``: when round t had been opened; ``changes``: the clock and the twin after every change."""

    at_round: list[Twin] = field(default_factory=list)
    changes: list[tuple[float, Twin]] = field(default_factory=list)
    end_s: float = math.nan

    def at_seconds(self, seconds: float) -> Twin:
        return [twin for clock_s, twin in self.changes if clock_s <= seconds][-1]


def truth_of(config: Config) -> Truth:
    """Plays the run by the readable engine and notes every twin."""
    engine, truth = Engine(config), Truth()

    class Watched(Coordinator):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "twin":
                truth.changes.append((engine.clock_s, self.twin))

        def open_round(self) -> None:
            super().open_round()
            truth.at_round.append(self.twin)

    truth.at_round.append(engine.coordinator.twin)
    truth.changes.append((0.0, engine.coordinator.twin))
    engine.coordinator.__class__ = Watched
    (asynchronous if config.run.mode == "async" else synchronous).run(engine, lambda *_: None, lambda: None)
    truth.end_s = engine.clock_s
    return truth
