"""The paper's devices: whoever is idle answers."""

from typing import Any

from fedtwin.draws import Purpose
from fedtwin.world.parts import Availability, Moment


def available(at: Moment, settings: Any) -> bool:  # noqa: ARG001
    return True


AVAILABILITY = Availability(available, purpose=Purpose.WORLD)
