"""Real processes, and a hostile device that takes tasks and starts anew, over and over; or keeps their tokens for later."""

import asyncio
import time
from pathlib import Path

import pytest
from safetensors.numpy import save

from fedtwin.live.wire.protocol import Hello, Task
from tests.live.hostile import ACCEPT, SAMPLES, Fleet, Hostile, done_for, marked

pytestmark = pytest.mark.slow
ATTACK_S = 12.0


def test_a_device_that_starts_anew_with_every_task_uses_up_nothing_and_redeems_one_token(tmp_path: Path) -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.goes_on()
        device = Hostile(fleet, fleet.next_name())
        await device.join()
        hoard: list[tuple[Task, bytes]] = []
        since, end = len(fleet.ledger()), time.monotonic() + ATTACK_S
        while time.monotonic() < end:
            device.answer = ACCEPT.encoded()
            await device.beat()
            await asyncio.sleep(0.02)
            while (got := device.next_task()) is not None:
                hoard.append(got)
                await device.hello(Hello(samples=SAMPLES, fresh=True))
        given_up = fleet.events("given-up", device.name, since=since)
        assert 2 <= len(hoard) <= 8 and len(given_up) == len(hoard), "0, 1, 2, 4, … s between them"
        for task, model in hoard:
            body = save(marked(model))
            await device.upload(task.token, body)
            await device.result(done_for(task, body))
        await fleet.until(lambda: fleet.events("applied", token=hoard[-1][0].token))
        await device.refused("late: a newer task")
        assert len(fleet.events("applied", device.name, since=since)) == 1
        await device.leave()

    with Fleet(tmp_path) as fleet:
        asyncio.run(scene(fleet))
