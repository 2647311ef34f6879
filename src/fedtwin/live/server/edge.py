"""The edge server: one run from its first hello to its last upload. Its parts are membership, dispatch and uploads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.learning.notices import never_changed
from fedtwin.learning.rates import short_of_the_schedule
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.connecting import Connecting
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.datapath import MOST_RESTART_AFTER_S, RESTART_AFTER_S, DataPath
from fedtwin.live.server.deadlines import Deadlines
from fedtwin.live.server.dispatch import Dispatcher
from fedtwin.live.server.evaluation import Evaluations
from fedtwin.live.server.holding import Holding
from fedtwin.live.server.lease import RENEW_S
from fedtwin.live.server.membership import Membership
from fedtwin.live.server.orders import Orders
from fedtwin.live.server.presence import Presence
from fedtwin.live.server.standstill import Standstill
from fedtwin.live.server.traffic import Traffic
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.views.device_series import MOST_DEVICES, DeviceSeries
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.views.mirror import Mirror, open_mirror
from fedtwin.live.views.sight import Sight
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

    ``standby``: the run's name is waited for; ``new``: nobody has heard of the run; every ``renew_s`` the lease is written;
    ``code``: the source of the run's own model, for devices that want it.
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
    code: dict[str, str] | None = None
    metrics_devices: int = MOST_DEVICES


class EdgeServer:
    """Serves until all rounds are played, or it is stopped."""

    def __init__(self, run: LiveRun, options: EdgeOptions) -> None:
        self._run, self._core, self._options = run, run.core, options
        self._clock = options.ports.clock
        self._metrics = Metrics(self._clock)
        self._metrics.resumed(run.core)
        self._stop_asked = asyncio.Event()
        self._opened = False
        self._connecting = Connecting(options.servers, options.broker, self._metrics, options.ports)
        self._sight = Sight(run.core)
        self._sight.read_back(run.folder / LEDGER_NAME)
        self._metrics.registry.register(DeviceSeries(run.core, self._sight, run.now_s, options.metrics_devices))
        self._presence = Presence(options.credentials)
        run.listeners += [self._count, _log, self._presence.happened, lambda event, _: self._sight.happened(event)]

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
            self._context = EdgeContext(self._run, transport, options.ports, options.code)
            self._holding = Holding(self._context, standby=options.standby, new=options.new, renew_s=options.renew_s)
            self._traffic = Traffic(self._context, options.broker)
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
                self._traffic.watch_for_ever(),
                self._deadlines.ask_the_broker_for_ever(),
            ]
            tasks = [asyncio.create_task(one) for one in work]
            try:
                finished = await self._until_done(tasks)
                if finished:  # while the broker is still looked after
                    self._tell_at_the_end()
                    await unless_stopped(self._finish(), self._stop_asked)
            finally:
                await end_tasks(tasks)
            self._run.commit(events.Stopped(at_s=self._run.now_s(), finished=finished))
            with suppress(*TROUBLES):
                await asyncio.wait_for(self._write_mirror(), timeout=5.0)
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
        """The broker may be killed at this very moment. One of ours that is there and stores nothing is started again, each
        time after a longer wait: its disk may still be full.
        """
        begun, broker = self._clock.monotonic_s(), self._options.broker
        restart_at_s = patience_s = RESTART_AFTER_S
        while True:
            try:
                return await work()
            except TROUBLES as error:
                reason, waited_s = words_of(error), self._clock.monotonic_s() - begun
                if waited_s > OPEN_S and not self._options.standby:
                    raise FedtwinError(f"The broker cannot be used, is its JetStream on? {reason}.") from None
                say(logging.WARNING, "the broker is not ready yet", reason=reason)
                self._look_after_the_broker()
                if broker is not None and waited_s > restart_at_s:
                    patience_s = min(2.0 * patience_s, MOST_RESTART_AFTER_S)
                    restart_at_s = waited_s + patience_s
                    await self._options.ports.in_a_thread(broker.stop)
                    broker.restart()
                    say(logging.WARNING, "the broker did not store and was started again")
                    self._metrics.repaired("broker")
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
        await Orders(context, self._traffic).open()
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
                if self._path.may_mend:
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
                on_the_way = bool(self._core.open or self._core.state.asking.questions)  # who is being asked may take a task
                if not on_the_way or self._clock.monotonic_s() > deadline:
                    return False
            await asyncio.sleep(TICK_S)
        return True

    async def _finish(self) -> None:
        """A stop cuts it short: all rounds have been played."""
        await self._uploads.until_empty()
        await self._uploads.take_no_more()
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
            self._presence.look(last)
            if self._core.started:
                self._presence.missed(self._context.is_silent, self._run)
            worker = self._options.worker
            if worker is not None and not self._context.stopping.is_set() and worker.look_after():
                self._evaluations.worker_is_new()
            if self._path.trouble is not None:
                self._deadlines.put_off()
            self._deadlines.look()
            if not self._context.stopping.is_set():
                self._context.settle_limits()
            if not self._context.stopping.is_set() and not self._core.done:
                self._standstill.look(self._path.trouble)
                self._end_by_rule()
            self._evaluations.tick()
            self._dispatcher.try_again_after_a_while()
            self._metrics.look(self._core, connected=self._context.transport.connected, path_ok=self._path.trouble is None)
            self._metrics.left_out(backed_off=len(self._context.held_back), cut=len(self._traffic.cut))
            self._context.wake.set()

    def _end_by_rule(self) -> None:
        if (end := self._core.end_by_rule(self._run.now_s())) is not None:
            self._run.commit(end)
            say(logging.INFO, "the run ends by its settings", rule=end.reason)

    def _tell_at_the_end(self) -> None:
        """Rounds of more boards than there were at the start are fewer than the rate was planned for."""
        core = self._core
        if core.applied and not core.changes:
            say(logging.WARNING, never_changed(core.applied))
        if core.ending is None and (told := short_of_the_schedule(core.for_devices, core.round)) is not None:
            say(logging.WARNING, told)

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
        context, trouble = self._context, self._path.trouble
        run = self._sight.run(self._run.now_s(), self._clock.wall_s(), trouble)
        await self._mirror.write(context.core, context.strangers, context.storage_losses, self._sight, run)

    def _count(self, event: Event, run: LiveRun) -> None:  # noqa: ARG002
        self._metrics.happened(event, self._core.live.time_scale)


def _log(event: Event, run: LiveRun) -> None:
    match event:
        case events.Applied():
            say(
                logging.INFO, "applied", device=run.core.names[event.device], version=event.version, cost=event.cost,
                round=f"{run.core.rounds_counted}/{run.core.config.run.rounds}",
                staleness=event.staleness, train_loss=event.train_loss, late=event.late, believed=event.believed,
            )  # fmt: skip
        case events.Limits():
            limits = {name: getattr(event, name) for name in run.core.live.limits_from_fleet or []}
            say(logging.INFO, "limits of an update, from what the boards measured", **limits, devices=event.devices)
        case events.GivenUp():
            say(logging.WARNING, "given up", device=run.core.names[event.device], reason=event.reason)
        case events.Refused(count=1) if event.reason.startswith("share:"):
            setting = f"live.influence_shares = {run.core.live.influence_shares:g}"
            say(logging.WARNING, "uploads are clipped: the device is faster than its share", device=event.name, setting=setting)
        case _:
            pass
