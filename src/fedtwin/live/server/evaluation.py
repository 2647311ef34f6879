"""Evaluation of the model by a worker of its own, found over the broker: the edge server itself needs no PyTorch."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.tasks import task_of
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.wire.ports import WorkerProcess
from fedtwin.live.wire.protocol import EVALUATION, Evaluate, Evaluated, NotEvaluated, with_body
from fedtwin.live.wire.settings import shared_settings
from fedtwin.live.wire.troubles import TROUBLES, words_of

TIMEOUT_S, LEAST_TIMEOUT_S, TIMES_THE_LAST = 120.0, 10.0, 10.0
TRIES_AT_THE_END, TRIES_WITH_A_NEW_WORKER = 20, 60
RETRY_S = 0.5
OBJECT_NAME = "evaluation"


class Evaluations:
    """The model every ``learning.evaluate_every_s`` of the run's clock, and at the end, if a worker is there: the one that is
    served, and then, where that is an average, the one that devices download; without an answer that stays unknown.

    It may take ten times as long as the one before, and at least ten seconds; a worker of ours that takes longer is ended.
    """

    def __init__(self, context: EdgeContext, worker: WorkerProcess | None = None) -> None:
        self._context, self._run, self._worker = context, context.run, worker
        self._timeout_s = TIMEOUT_S
        self._silences = 0
        self._job: asyncio.Task[bool] | None = None
        self._next_s = 0.0
        self._ending = False
        self._told = ""

    def tick(self) -> None:
        """Begins an evaluation when one is due and none goes on."""
        learning = self._run.config.learning
        if self._ending or learning is None or not self._run.core.started or (self._job is not None and not self._job.done()):
            return
        now_s = self._run.now_s()
        if now_s >= self._next_s and self._run.core.version != self._run.core.measured_version:
            self._job = asyncio.create_task(self._evaluate_when_due(learning.evaluate_every_s))

    def worker_is_new(self) -> None:
        """The one before has taken with it what it was asked."""
        if self._job is not None:
            self._job.cancel()

    async def last(self) -> None:
        """The final model."""
        self._ending = True
        if self._run.config.learning is None:
            return
        if self._job is not None:
            await asyncio.wait([self._job])
        if self._run.core.measured_version == self._run.core.version:
            return
        clock = self._context.clock
        end, tries, silences = clock.monotonic_s() + TIMEOUT_S, TRIES_AT_THE_END, self._silences
        while tries > 0 and clock.monotonic_s() < end:
            if await self._evaluate():
                return
            tries -= 1
            if self._silences > silences:
                tries, silences = TRIES_WITH_A_NEW_WORKER, self._silences
            await asyncio.sleep(RETRY_S)
        say(logging.WARNING, "the final model was not evaluated")

    async def _evaluate_when_due(self, every_s: float) -> bool:
        begun_s = self._run.now_s()
        found = await self._evaluate()
        if found:
            self._next_s = (begun_s // every_s + 1.0) * every_s
        else:
            await asyncio.sleep(RETRY_S)
        return found

    async def _answer(self, question: bytes) -> bytes:
        context, begun, limit_s = self._context, self._context.clock.monotonic_s(), self._timeout_s
        try:
            reply = await context.transport.request(context.subjects.evaluate, question, timeout_s=limit_s)
        except TimeoutError:
            if context.transport.connected and context.path_is_well:  # else it is not the worker
                say(logging.WARNING, "not evaluated", reason=f"the worker did not answer within {limit_s:g} s")
                self._silences += 1
                self._timeout_s = min(2.0 * limit_s, TIMEOUT_S)
                if self._worker is not None:
                    self._worker.end()
            raise
        self._timeout_s = min(max(LEAST_TIMEOUT_S, TIMES_THE_LAST * (context.clock.monotonic_s() - begun)), TIMEOUT_S)
        return reply

    async def _measured(self, model: bytes) -> Evaluated | NotEvaluated | None:
        """What the worker says of a model; None where it could not be asked."""
        context = self._context
        request = Evaluate(
            model_bytes=len(model), config=shared_settings(self._run.config), normalisation=self._run.core.normalisation
        )
        try:
            if context.needs_objects:
                await context.transport.put_object(context.subjects.models_bucket, OBJECT_NAME, model)
                request, model = request.model_copy(update={"object_name": OBJECT_NAME}), b""
            reply = await self._answer(b"".join(with_body(request, model)))
            return EVALUATION.validate_json(reply)
        except (*TROUBLES, ValidationError) as error:
            say(logging.DEBUG, "not evaluated", reason=words_of(error))
            return None

    @contextmanager
    def _telling_what_is_not_kept(self) -> Iterator[None]:
        """The run goes on without."""
        try:
            yield
        except (OSError, FedtwinError) as error:
            say(logging.WARNING, "the model that was evaluated is not written", reason=words_of(error))

    async def _evaluate(self) -> bool:
        """What nobody has thought of costs the run no more than this evaluation, unless its ledger cannot be written."""
        try:
            return await self._evaluate_now()
        except Exception as error:
            if self._run.failure is not None:
                raise
            self._not_now(logging.ERROR, "the evaluation failed", f"{type(error).__name__}: {error}")
            return False

    def _not_now(self, level: int, what: str, reason: str) -> None:
        """Said once; the next one is when it would be due."""
        if reason != self._told:
            say(level, what, reason=reason)
        self._told = reason
        if learning := self._run.config.learning:
            self._next_s = self._run.now_s() + learning.evaluate_every_s

    async def _evaluate_now(self) -> bool:
        core, model = self._run.core, self._run.model
        served, plain, is_plain = model.served, model.encoded, model.served.floats is model.weights.floats
        round_, version, at_s, energy_j = core.round, core.version, self._run.now_s(), core.energy_j
        found = await self._measured(plain if is_plain else model.codec.encode(served))
        if found is None:
            return False
        if isinstance(found, NotEvaluated):
            self._not_now(logging.WARNING, "not evaluated", found.reason)
            return False
        other, beside = found if is_plain else await self._measured(plain), {}
        if model.averages and isinstance(other, Evaluated):
            beside = {"plain_test_loss": other.test_loss, "plain_test_metric": _metric(other)}
        with self._telling_what_is_not_kept():
            await self._context.ports.in_a_thread(self._run.keepsakes.describe)
            self._run.keepsakes.measured(served, version, round_, found.test_loss, _metric(found))
        self._run.commit(
            events.Measured(
                at_s=self._run.now_s(), round=round_, version=version, model_at_s=at_s, energy_j=energy_j,
                test_loss=found.test_loss, test_accuracy=found.test_accuracy, test_metric=found.test_metric, **beside,
            )
        )  # fmt: skip
        value = {_field_of(self._run.config): _metric(found)}
        say(logging.INFO, "evaluated", round=round_, version=version, **value, loss=found.test_loss)
        return True


def _field_of(config: Config) -> str:
    """What the log calls the metric; one of the user's own could have the name of any other field."""
    learning = config.learning or LearningConfig()
    return "metric" if ":" in learning.metric else task_of(learning).metric


def _metric(found: Evaluated) -> float | None:
    """An older worker tells the accuracy only."""
    return found.test_accuracy if found.test_metric is None else found.test_metric
