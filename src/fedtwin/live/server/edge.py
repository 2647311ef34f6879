"""The edge server: one run from its first hello to its last upload. Its parts are membership, dispatch and uploads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.connecting import Connecting
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.datapath import RESTART_AFTER_S, DataPath
from fedtwin.live.server.deadlines import Deadlines
from fedtwin.live.server.dispatch import Dispatcher
from fedtwin.live.server.evaluation import Evaluations
from fedtwin.live.server.holding import Holding
from fedtwin.live.server.lease import RENEW_S
from fedtwin.live.server.membership import Membership
from fedtwin.live.server.standstill import Standstill
from fedtwin.live.server.traffic import Traffic
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.views.mirror import Mirror, open_mirror
from fedtwin.live.wire.ports import BrokerProcess, Ports, WorkerProcess
from fedtwin.live.wire.protocol import FAREWELL
from fedtwin.live.wire.real import REAL
from fedtwin.live.wire.tasks import end_tasks, unless_stopped
from fedtwin.live.wire.troubles import TROUBLES, words_of

TICK_S, PAUSED_S = 0.05, 2.0
MIRROR_EVERY_S = 0.5
READY_TRIES, READY_PAUSE_S = 50, 0.2
OPEN_S, FAREWELL_S = 30.0, 1


@dataclass
class EdgeOptions:
    """Where the broker is; whether it is ours to look after, and the evaluation worker, if that is.

    ``standby``: the run's name is waited for; ``new``: nobody has heard of the run; every ``renew_s`` the lease is written.
    """

    servers: list[str]
    broker: BrokerProcess | None = None
    credentials: Path | None = None
    insecure: bool = False
    metrics: str | None = None
    grace_s: float = 10.0
    worker: WorkerProcess | None = None
    ports: Ports = REAL
    standby: bool = False
    new: bool = False
    renew_s: float = RENEW_S


class EdgeServer:
    """Serves until all rounds are played, or it is stopped."""

    def __init__(self, run: LiveRun, options: EdgeOptions) -> None:
        self._run, self._core, self._options = run, run.core, options
        self._clock = options.ports.clock
        self._metrics = Metrics()
        self._stop_asked = asyncio.Event()
        self._opened = False
        self._connecting = Connecting(options.servers, options.broker, self._metrics, options.ports)
        run.listeners += [self._count, _log]

    def stop(self) -> None:
        """No device is asked any more; uploads on their way are waited for, a little."""
        self._stop_asked.set()

    @property
    def trouble(self) -> str | None:
        """Why no upload came through when it ended; None where they did, or it was stopped before that was clear."""
        return self._path.trouble if self._opened else self._connecting.trouble

    async def serve(self) -> bool:
        """True when all rounds are played, False when ``stop`` was called."""
        options = self._options
        if options.metrics is not None:
            say(logging.INFO, "metrics", port=self._metrics.serve(options.metrics))
        connecting = self._connecting.connected(
            credentials=options.credentials, insecure=options.insecure, on_reconnect=self._on_reconnect
        )
        transport = await unless_stopped(connecting, self._stop_asked)
        if transport is None:
            self._run.commit(events.Stopped(at_s=self._run.now_s(), finished=False))
            return False
        try:
            self._context = EdgeContext(self._run, transport, options.ports)
            self._holding = Holding(self._context, standby=options.standby, new=options.new, renew_s=options.renew_s)
            self._standstill = Standstill(self._context, self._metrics)
            self._run.listeners.append(lambda event, _: self._standstill.happened(event))
            if await unless_stopped(self._hold_the_run(), self._stop_asked) is None:
                return False
            if await unless_stopped(self._open_until_it_works(), self._stop_asked) is None:
                self._run.commit(events.Stopped(at_s=self._run.now_s(), finished=False))
                return False
            work = [
                self._dispatcher.work_for_ever(),
                self._tick_for_ever(),
                self._mirror_for_ever(),
                self._path.watch_for_ever(),
                Traffic(self._context, self._options.broker).watch_for_ever(),
            ]
            tasks = [asyncio.create_task(one) for one in work]
            try:
                finished = await self._until_done(tasks)
                if finished:  # while the broker is still looked after
                    await unless_stopped(self._finish(), self._stop_asked)
            finally:
                await end_tasks(tasks)
            with suppress(*TROUBLES):
                await asyncio.wait_for(self._write_mirror(), timeout=5.0)
            self._run.commit(events.Stopped(at_s=self._run.now_s(), finished=finished))
            await self._say_farewell()
            return finished
        finally:
            await self._holding.end()
            await transport.close()

    async def _hold_the_run(self) -> bool:
        await self._until_it_works(self._holding.take)
        await self._until_it_works(self._holding.write_to_the_broker)
        return True

    async def _say_farewell(self) -> None:
        """So that a broker which ends with us is no surprise to the devices."""
        with suppress(*TROUBLES):
            await self._context.transport.publish(self._context.subjects.call, FAREWELL)
            await self._context.transport.flush(FAREWELL_S)

    async def _open_until_it_works(self) -> bool:
        await self._until_it_works(self._open)
        return True

    async def _until_it_works(self, work: Callable[[], Awaitable[None]]) -> None:
        """The broker may be killed at this very moment. One of ours that is there and stores nothing is started again, once."""
        begun, broker = self._clock.monotonic_s(), self._options.broker
        while True:
            try:
                return await work()
            except TROUBLES as error:
                reason, waited_s = words_of(error), self._clock.monotonic_s() - begun
                if waited_s > OPEN_S and not self._options.standby:
                    raise FedtwinError(f"The broker cannot be used, is its JetStream on? {reason}.") from None
                say(logging.WARNING, "the broker is not ready yet", reason=reason)
                self._look_after_the_broker()
                if broker is not None and waited_s > RESTART_AFTER_S:
                    await self._options.ports.in_a_thread(broker.stop)
                    broker.restart()
                    say(logging.WARNING, "the broker did not store and was started again")
                    self._metrics.repaired("broker")
                    broker = None
                await asyncio.sleep(READY_PAUSE_S)

    async def _open(self) -> None:
        context = self._context
        self._mirror: Mirror = await open_mirror(context.transport, context.subjects.twin_bucket, self._core.live.replicas)
        self._dispatcher, self._uploads = Dispatcher(context), Uploads(context)
        self._deadlines = Deadlines(context, self._uploads)
        self._evaluations = Evaluations(context, self._options.worker)
        self._path = DataPath(context, self._uploads, self._options.broker, self._metrics)
        await self._path.open()
        await Membership(context).open()
        say(logging.INFO, "serving", run=self._run.name, servers=" ".join(self._options.servers), version=self._core.version)
        await context.transport.publish(context.subjects.call, b"")
        if self._core.started:
            context.wait_for_the_fleet()
        self._deadlines.put_off()
        context.wake.set()
        self._opened = True

    async def _on_reconnect(self) -> None:
        say(logging.INFO, "reconnected")
        if not self._opened:
            return
        self._deadlines.put_off()
        self._context.wait_for_the_fleet()
        for _ in range(READY_TRIES):
            try:
                await self._path.restore()
                await self._context.transport.publish(self._context.subjects.call, b"")
                break
            except TROUBLES as error:
                say(logging.DEBUG, "the broker is not ready yet", reason=words_of(error))
                await asyncio.sleep(READY_PAUSE_S)
        self._deadlines.put_off()
        self._context.wake.set()

    async def _until_done(self, tasks: list[asyncio.Task[None]]) -> bool:
        deadline = None
        while not self._core.done:
            self._holding.check()
            for task in tasks:
                if task.done() and (error := task.exception()) is not None:
                    raise error
            if self._uploads.trouble is not None:
                raise self._uploads.trouble
            if self._run.failure is not None:  # met where a message was handled, which ends nothing by itself
                raise self._run.failure
            if self._stop_asked.is_set():
                self._context.stopping.set()
                deadline = deadline or self._clock.monotonic_s() + self._options.grace_s
                if not self._core.open or self._clock.monotonic_s() > deadline:
                    return False
            await asyncio.sleep(TICK_S)
        return True

    async def _finish(self) -> None:
        """A stop cuts it short: all rounds have been played."""
        await self._uploads.until_empty()
        await self._evaluations.last()

    # Time

    async def _tick_for_ever(self) -> None:
        last = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(TICK_S)
            last, since = self._clock.monotonic_s(), last
            if last - since > PAUSED_S:
                self._was_away(last - since)
            self._look_after_the_broker()
            worker = self._options.worker
            if worker is not None and not self._context.stopping.is_set() and worker.look_after():
                self._evaluations.worker_is_new()
            if self._path.trouble is not None:
                self._deadlines.put_off()
            self._deadlines.look()
            if not self._context.stopping.is_set() and not self._core.done:
                self._standstill.look(self._path.trouble)
            self._evaluations.tick()
            self._dispatcher.try_again_after_a_while()
            self._metrics.look(self._core, connected=self._context.transport.connected, path_ok=self._path.trouble is None)
            self._context.wake.set()

    def _look_after_the_broker(self) -> None:
        """Started again from this very thread: a broker of the demo's kind ends with the thread that started it."""
        broker = self._options.broker
        if self._opened and self._path.restarting:
            return
        if broker is not None and not broker.alive() and not self._context.stopping.is_set():
            say(logging.WARNING, "the broker is gone and is started again")
            broker.restart()
            self._metrics.repaired("broker")

    def _was_away(self, away_s: float) -> None:
        """This process stood still: what was sent to it meanwhile has not been read yet."""
        say(logging.WARNING, f"the edge server itself stood still for {away_s:.1f} s")
        self._deadlines.put_off()
        self._context.heard = {name: heard + away_s for name, heard in self._context.heard.items()}

    async def _mirror_for_ever(self) -> None:
        while True:
            await asyncio.sleep(MIRROR_EVERY_S)
            if self._context.transport.connected:
                try:
                    await self._write_mirror()
                except TROUBLES as error:
                    say(logging.DEBUG, "the twin's mirror is behind", reason=words_of(error))

    async def _write_mirror(self) -> None:
        context = self._context
        await self._mirror.write(context.core, context.strangers, context.storage_losses)

    def _count(self, event: Event, run: LiveRun) -> None:  # noqa: ARG002
        self._metrics.happened(event, self._core.live.time_scale)


def _log(event: Event, run: LiveRun) -> None:
    match event:
        case events.Applied():
            say(
                logging.INFO, "applied", device=run.core.names[event.device], version=event.version, cost=event.cost,
                round=f"{run.core.rounds_counted}/{run.config.run.rounds}",
                staleness=event.staleness, train_loss=event.train_loss, late=event.late, believed=event.believed,
            )  # fmt: skip
        case events.GivenUp():
            say(logging.WARNING, "given up", device=run.core.names[event.device], reason=event.reason)
        case _:
            pass
