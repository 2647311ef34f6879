"""What ``fedtwin calibrate`` does: a board measures itself, and joins nothing."""

import asyncio

from fedtwin.config import Config
from fedtwin.live.device.agent import Agent
from fedtwin.live.device.calibration import Calibration, calibrate
from fedtwin.live.device.planner import AgentOptions
from fedtwin.live.device.trainers import prepared
from fedtwin.live.wire.protocol import Hello
from fedtwin.live.wire.settings import taken_settings


class Calibrator(Agent):
    """``found`` is there when it has run to its end: with a server by the run's settings, and with the link."""

    found: Calibration | None = None

    async def run(self) -> None:
        if not await self._connected():
            return
        try:
            welcome = await self._hello(Hello())
            if welcome is not None:
                config = taken_settings(welcome.config)
                self._samples = await self._ports.in_a_thread(prepared, self._options.trainer, config)
                self.found = await self._calibrated(config)
        finally:
            self._options.trainer.stop()
            await self._transport.close()


def calibrated_alone(options: AgentOptions, config: Config) -> Calibration:
    """Without a server: only the training."""
    samples = prepared(options.trainer, config)
    return asyncio.run(
        calibrate(None, "", options.ports, options.trainer, config, samples, name=options.name, cpu_hz=options.cpu_hz)
    )
