"""A run that is ours to serve: its lease is kept, and its ledger written where it is to be."""

import asyncio
from contextlib import suppress

from fedtwin.errors import FedtwinError
from fedtwin.live.run.following import attached
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.lease import Lease
from fedtwin.live.wire.box import Box
from fedtwin.live.wire.tape import Tape
from fedtwin.live.wire.tasks import end_tasks

SETTLE_S = 5.0


class Holding:
    """``take``, and ``write_to_the_broker`` if the ledger is to be there; ``check`` says when it is over; then ``end``."""

    def __init__(self, context: EdgeContext, *, standby: bool, new: bool, renew_s: float) -> None:
        self._context, self._standby, self._new = context, standby, new
        run, replicas = context.run, context.core.live.replicas
        self._lease = Lease(context.transport, run.name, run.folder, replicas, context.ports, renew_s)
        self._keepers: list[asyncio.Task[None]] = []

    async def take(self) -> None:
        """``ServedElsewhereError`` where another edge server serves the run, unless we stand by."""
        await self._lease.take(standby=self._standby)
        self._context.lease = self._lease
        self._keepers.append(asyncio.create_task(self._lease.keep_for_ever()))

    async def write_to_the_broker(self) -> None:
        context, replicas = self._context, self._context.core.live.replicas
        if context.core.live.ledger == "file":
            return
        tape = Tape(context.transport, context.subjects.ledger_tape, context.subjects.ledger, replicas=replicas)
        box = Box(context.transport, context.subjects.files_bucket, replicas)
        stream = await attached(context.run.folder, tape, box, new=self._new)
        context.run.write_to(stream)
        self._keepers.append(asyncio.create_task(stream.write_for_ever()))

    def check(self) -> None:
        """``TakenOverError`` where another has it by now."""
        for task in self._keepers:
            if task.done() and (error := task.exception()) is not None:
                raise error

    async def end(self) -> None:
        """What happened is in the ledger, if the broker is there; and the lease is given back, if it was ours."""
        if self._keepers:
            with suppress(TimeoutError, FedtwinError):
                await asyncio.wait_for(self._context.run.settled(), SETTLE_S)
            await end_tasks(self._keepers)
            await self._lease.end()
