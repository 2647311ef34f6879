"""The rounds: the device the coordinator chooses is asked, and sent the model if it accepts. One question per free channel."""

import asyncio
import logging
from contextlib import suppress

from pydantic import ValidationError

from fedtwin.learning.rates import past_the_schedule
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.wire.ports import NobodyThereError
from fedtwin.live.wire.protocol import ANSWER, Ask, Decline, Drop, Task, misfit, with_body
from fedtwin.live.wire.tasks import end_tasks
from fedtwin.live.wire.troubles import TROUBLES, words_of


class Dispatcher:
    """Works whenever it is woken: somebody joined, an upload came, time passed."""

    def __init__(self, context: EdgeContext) -> None:
        self._context, self._run, self._core = context, context.run, context.core
        self._objects: dict[int, str] = {}
        self._losses = context.storage_losses
        self._passed_at = 0.0
        self._told_of_the_rate = False
        self._questions: set[asyncio.Task[None]] = set()
        self._putting = asyncio.Lock()

    async def work_for_ever(self) -> None:
        context = self._context
        try:
            while True:
                await context.wake.wait()
                context.wake.clear()
                for question in [question for question in self._questions if question.done()]:
                    self._questions.remove(question)
                    question.result()
                await self._tell_the_dropped()
                while self._go_on():
                    pass
        finally:
            await end_tasks(list(self._questions))

    def _go_on(self) -> bool:
        """One step: False where nothing is to be done."""
        self._run.close_round()
        asked = self._core.next_ask(self._run.now_s()) if self._context.can_ask else None
        if asked is None:
            return False
        if isinstance(asked, events.Asked):
            told = self._context.beats.told(self._core, asked, self._run.now_s(), self._context.clock.monotonic_s())
            if told is not None:  # the choice may be another one now
                self._run.commit(told)
                return True
        self._run.commit(asked)
        if isinstance(asked, events.Passed):
            self._passed_at = self._context.clock.monotonic_s()
            say(logging.DEBUG, "passed", round=asked.round)
        if isinstance(asked, events.Asked):
            question = asyncio.create_task(self._ask(asked))
            question.add_done_callback(self._ended)
            self._questions.add(question)
        return True

    def _ended(self, question: asyncio.Task[None]) -> None:
        """What went wrong is looked at by whoever wakes up; or by nobody, where all ends at this moment."""
        self._context.wake.set()
        if not question.cancelled():
            question.exception()

    async def _tell_the_dropped(self) -> None:
        """They stop, and are free for the next round; whoever does not hear it finishes in vain."""
        context = self._context
        while context.dropped:
            sent = context.dropped.pop()
            await context.settled()
            with suppress(*TROUBLES):
                subject = context.subjects.task(self._core.names[sent.device])
                await context.transport.publish(subject, Drop(token=sent.token).encoded())

    def try_again_after_a_while(self) -> None:
        """Everybody has declined and nothing is in flight: T_max later their channels are others."""
        wait_s = self._core.terms.max_time_s * self._core.live.time_scale
        if self._core.waits_for_nothing and self._context.clock.monotonic_s() - self._passed_at > wait_s:
            self._run.commit(self._core.offer_again(self._run.now_s()))
            self._passed_at = self._context.clock.monotonic_s()

    async def _ask(self, asked: events.Asked) -> None:
        run, core, context = self._run, self._core, self._context
        name = core.names[asked.device]
        question = Ask(round=asked.round, clock_s=asked.at_s, **core.asked_with(asked.device)).encoded()
        await context.settled()
        begun, reconnects = context.clock.monotonic_s(), context.transport.reconnects
        try:
            reply = await context.transport.request(context.subjects.ask(name), question, timeout_s=core.live.ask_timeout_s)
            answer = ANSWER.validate_json(reply)
        except NobodyThereError:
            run.commit(core.unanswered(asked, run.now_s(), "not connected"))
            return
        except TROUBLES:
            if context.transport.connected and context.transport.reconnects == reconnects:  # else it is not the device's fault
                context.patience_with(name, context.clock.monotonic_s() - begun)
            run.commit(core.unanswered(asked, run.now_s(), "no answer"))
            return
        except ValidationError as error:
            run.refuse(name, "answer", misfit(error))
            answer = Decline(reason=f"refused: {misfit(error)}"[:500])
        if core.is_quarantined(name):
            run.commit(core.left_out(asked, run.now_s()))
            return
        if context.patience_with(name, context.clock.monotonic_s() - begun) < 0.0:
            run.commit(core.unanswered(asked, run.now_s(), "slow: its answers take too long"))
            return
        event = core.answered(asked, answer, context.ports.chance.token(), run.now_s())
        run.commit(event)
        if isinstance(event, events.Dispatched):
            self._tell_of_the_rate(event.round)
            await self._send(name, event)
        else:
            say(logging.DEBUG, "declined", device=name, round=asked.round, reason=event.reason)

    def _tell_of_the_rate(self, round_: int) -> None:
        if not self._told_of_the_rate and (told := past_the_schedule(self._core.for_devices, round_)) is not None:
            self._told_of_the_rate = True
            say(logging.WARNING, told)

    async def _send(self, name: str, sent: events.Dispatched) -> None:
        """Lost on the way, it is a task whose deadline passes."""
        context, model = self._context, self._run.model.encoded
        await context.settled()
        task = Task(token=sent.token, round=sent.round, version=sent.version, clock_s=sent.at_s, model_bytes=len(model))
        try:
            if context.needs_objects:
                async with self._putting:
                    task = task.model_copy(update={"object_name": await self._put(sent.version, model)})
                model = b""
            await context.transport.publish(context.subjects.task(name), b"".join(with_body(task, model)))
        except TROUBLES as error:
            say(logging.WARNING, "a task could not be sent", device=name, reason=words_of(error))
        say(logging.DEBUG, "dispatched", device=name, round=sent.round, version=sent.version)

    async def _put(self, version: int, model: bytes) -> str:
        """The model's object, put once a version; those no task in flight needs are removed."""
        context, bucket = self._context, self._context.subjects.models_bucket
        if self._losses != context.storage_losses:
            self._objects, self._losses = {}, context.storage_losses
        if version not in self._objects:
            name = f"model-{version}"
            await context.transport.put_object(bucket, name, model)
            self._objects[version] = name
            needed = {version, *(task.sent.version for task in self._core.open.values())}
            for old in [old for old in self._objects if old not in needed]:
                with suppress(*TROUBLES):  # the task is sent all the same
                    await context.transport.delete_object(bucket, self._objects.pop(old))
        return self._objects[version]
