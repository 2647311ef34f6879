"""The way of an upload, walked by the edge server itself: stored by the broker, acknowledged, delivered. Broken, it is mended.

A connection says little: a broker can answer and store nothing, or store and deliver nothing. So a pulse goes the whole way
every few seconds, through the stream and the consumer of the uploads.
"""

import asyncio
import logging
from contextlib import suppress

from fedtwin.live.logs import say
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.storage import Storage
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.wire.ports import BrokerProcess, NobodyThereError, TooManyWaitError
from fedtwin.live.wire.troubles import TROUBLES, words_of

LOOK_EVERY_S, LOOK_AGAIN_S = 2.0, 0.5
ANSWER_S, PAUSE_S = 2.0, 0.02
TELL_EVERY_S = 10.0
RESTART_AFTER_S, MOST_RESTART_AFTER_S = 5.0, 60.0
LEAST_ROOM_BYTES = 2**20
NOT_REACHED = "the broker is not reached"
NOT_RENEWED = "the right to serve the run is not renewed: the broker does not store, or another has it"
STUCK_S = 60.0
STUCK = "an upload that was delivered is not finished: an answer of the broker or the ledger is waited for"
BROKEN = (*TROUBLES, OSError)


class DataPath:
    """``trouble``: why no upload comes through, None while they do. Only what is missing is made: nothing stored is lost."""

    def __init__(self, context: EdgeContext, uploads: Uploads, broker: BrokerProcess | None, metrics: Metrics) -> None:
        self._clock, self._in_a_thread = context.clock, context.ports.in_a_thread
        self._context, self._uploads, self._broker, self._metrics = context, uploads, broker, metrics
        self._storage = Storage(context, uploads)
        self._one_at_a_time = asyncio.Lock()
        self._told_at = 0.0
        self._restart_at, self._patience_s = 0.0, RESTART_AFTER_S
        self.trouble: str | None = None
        self.restarting = False
        self._blind = False

    async def open(self) -> None:
        """Streams, buckets and a consumer, whatever of them is there already."""
        await self._storage.make_missing(ANSWER_S)
        await self._uploads.open()

    @property
    def may_mend(self) -> bool:
        """Whoever was away for long must not take another's consumer away. A broker of our own has nobody else."""
        return self._broker is not None or self._context.may_serve

    async def restore(self) -> None:
        """After a reconnect: the broker may be another one, with nothing on its disk."""
        async with self._one_at_a_time:
            await self._make_missing()
            await self._uploads.consume_anew()

    async def watch_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S if self.trouble is None else LOOK_AGAIN_S)
            async with self._one_at_a_time:
                await self._look()

    async def _look(self) -> None:
        if not self._context.transport.connected:
            if not self._context.stopping.is_set():  # else it may be stopped with us
                self._broken(NOT_REACHED)
                if self._broker is not None and self._broker.alive() and not await self._in_a_thread(self._broker.answers):
                    await self._start_the_broker_again()
            return
        if not self.may_mend:
            self._broken(NOT_RENEWED)
            return
        before = self._uploads.delivered
        try:
            await self._make_missing()
            for what in await self._uploads.set_right():
                self._mended(what, f"the {what} had other settings, ours are set again")
            if self._blind:
                self._well()
                return
            await self._store_a_pulse()
        except BROKEN as error:
            if self._may_not_send_pulses():
                return
            full = self._full_disk()
            self._broken(full or f"the broker does not store: {_words(error)}")
            if full is None:
                await self._start_the_broker_again()
            return
        if not await self._may_serve_soon():
            self._broken(NOT_RENEWED)
            await self._start_the_broker_again()
            return
        if self._uploads.busy_s > STUCK_S:
            self._broken(STUCK)
            return
        if await self._delivered_since(before):
            self._well()
            return
        self._broken("the broker stores, and does not deliver")
        with suppress(*BROKEN):
            await self._uploads.consume_anew()
            self._mended("consumer", "the consumer delivered nothing and is made again")

    async def _make_missing(self) -> None:
        """A stream that was missing has no consumer either."""
        missing = await self._storage.make_missing(ANSWER_S)
        for kind, name in missing:
            if kind == "queue":
                await self._uploads.consume_anew()
                self._mended("stream", "the stream was missing and is made again: uploads that lay there are lost")
            else:
                self._mended("bucket", "a bucket was missing and is made again", bucket=name)
        if missing:
            self._context.lost_storage()

    async def _store_a_pulse(self) -> None:
        sent_s = repr(self._context.run.now_s()).encode()
        with suppress(TooManyWaitError):  # it stores, and the question is whether it delivers
            await self._context.transport.store(self._context.subjects.pulse, sent_s, answer_s=ANSWER_S)

    def _may_not_send_pulses(self) -> bool:
        """The rights of a fleet that was provisioned before there were pulses."""
        self._blind = self._context.transport.refused(self._context.subjects.pulse)
        self._context.sends_pulses = not self._blind
        if self._blind:
            again = f"fedtwin provision DIR --run {self._context.run.name}"
            say(logging.ERROR, f"whether uploads come through is not watched: users.conf is old, {again} writes it anew")
        return self._blind

    async def _may_serve_soon(self) -> bool:
        """Without the right nothing goes outside. After a pause it is written anew within a moment."""
        if self._context.lease is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._context.lease.held(), ANSWER_S)
        return self._context.may_serve

    async def _delivered_since(self, before: int) -> bool:
        """Anything will do; and an upload that is being looked at has been delivered."""
        end = self._clock.monotonic_s() + ANSWER_S
        while self._uploads.delivered == before and not self._uploads.busy and self._clock.monotonic_s() < end:
            await asyncio.sleep(PAUSE_S)
        return self._uploads.delivered != before or self._uploads.busy

    def _well(self) -> None:
        if self.trouble is not None:
            say(logging.WARNING, "uploads come through again", after=self.trouble)
            self._context.wake.set()
        self.trouble, self._context.path_is_well, self._patience_s = None, True, RESTART_AFTER_S

    def _broken(self, reason: str) -> None:
        """Said at once, when it changes, and every few seconds."""
        now = self._clock.monotonic_s()
        if self.trouble is None:
            self._restart_at = now + self._patience_s
        if reason != self.trouble or now - self._told_at > TELL_EVERY_S:
            say(logging.ERROR, "no upload comes through", reason=reason)
            self._told_at = now
        self.trouble, self._context.path_is_well = reason, False

    def _mended(self, what: str, sentence: str, **fields: object) -> None:
        say(logging.WARNING, sentence, **fields)
        self._metrics.repaired(what)

    def _full_disk(self) -> str | None:
        """A broker of ours that met a full disk stores nothing until it is started again, also when there is room."""
        needed = max(4 * self._context.run.model.most_upload_bytes, LEAST_ROOM_BYTES)
        if self._broker is None or self._broker.room_bytes() >= needed:
            return None
        return f"the broker's disk is full: {self._broker.store} has less than {needed >> 10} KiB left"

    async def _start_the_broker_again(self) -> None:
        """If it is ours, and has had its time; each time it gets more."""
        broker, now = self._broker, self._clock.monotonic_s()
        if broker is None or self._context.stopping.is_set() or now < self._restart_at:
            return
        self._patience_s = min(2.0 * self._patience_s, MOST_RESTART_AFTER_S)
        self._restart_at = now + self._patience_s
        self.restarting = True
        try:
            await self._in_a_thread(broker.stop)
            broker.restart()
        finally:
            self.restarting = False
        self._mended("broker", "the broker did not store and was started again")


def _words(error: BaseException) -> str:
    if isinstance(error, NobodyThereError):
        return "its JetStream does not answer"
    if isinstance(error, TimeoutError):
        return f"no acknowledgement within {ANSWER_S:g} s"
    return words_of(error)
