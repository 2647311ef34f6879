"""What is asked of one run beside its configuration. No number depends on any of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedtwin.sim.callbacks import Listeners

if TYPE_CHECKING:
    from fedtwin.learning.executors import Executor
    from fedtwin.learning.learner import LearnerState

CHECKPOINT_EVERY_S = 30.0


@dataclass(frozen=True)
class Wanted:
    """Where records go, at which rounds the series is sampled, who is told, how often a training is saved."""

    out: Path | None = None
    trace: bool = False
    records: bool = True
    checkpoints: Sequence[int] = ()
    progress: Callable[[int], None] | None = None
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    executor: "Executor | None" = None
    listeners: Listeners = field(default_factory=Listeners)


@dataclass(frozen=True)
class Resumed:
    """A run that was begun before; its learner's last checkpoint, if it wrote one."""

    state: "LearnerState | None"
