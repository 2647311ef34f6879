"""What is made small, so that a schedule of seconds meets it: segments of the ledger, and messages. And what is made cheap."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from fedtwin.live.device import delivery
from fedtwin.live.run import following, trail
from fedtwin.live.server import context, edge, evaluator
from tests.live.simulated.broker import MAX_PAYLOAD
from tests.live.simulated.faults import Schedule

MESSAGE_BYTES = 64
"""Whatever is longer goes through the object store: every model."""
TICK_S = 0.2
"""The edge server looks at its deadlines so often: most of what a quiet time costs goes into that."""


@contextmanager
def conditions(schedule: Schedule) -> Iterator[None]:
    with ExitStack() as changed:
        for module in (trail, following):
            changed.enter_context(patch.object(module, "SEGMENT_LINES", schedule.segment_lines))
        changed.enter_context(patch.object(edge, "TICK_S", TICK_S))
        if schedule.objects:
            for module in (context, delivery):
                changed.enter_context(patch.object(module, "MESSAGE_SLACK_BYTES", MAX_PAYLOAD - MESSAGE_BYTES))
        if schedule.evaluator:
            changed.enter_context(patch.object(evaluator, "import_torch", lambda: None))
        yield
