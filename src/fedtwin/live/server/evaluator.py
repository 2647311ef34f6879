"""The evaluation worker: has PyTorch and the test set, and answers with loss and metric."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.learning.tasks import task_of
from fedtwin.live.logs import say
from fedtwin.live.wire.ports import Incoming, ObjectError, Ports, Transport
from fedtwin.live.wire.protocol import Evaluate, Evaluated, Normalised, NotEvaluated, Subjects, split_body
from fedtwin.live.wire.real import REAL
from fedtwin.live.wire.settings import with_code_in
from fedtwin.live.wire.tasks import unless_stopped
from fedtwin.live.wire.tensors import Codec, UnfitError

MOST_MODEL_BYTES = 2**34


class Evaluator:
    """One worker for one run; ``data`` in place of the run's data set where that is not here, ``code`` for its own model."""

    def __init__(
        self,
        servers: list[str],
        run: str,
        *,
        data: str | None = None,
        code: Path | None = None,
        credentials: Path | None = None,
        insecure: bool = False,
        ports: Ports = REAL,
    ) -> None:
        self._servers, self._subjects, self._data, self._code = servers, Subjects(run), data, code
        self._credentials, self._insecure, self._ports = credentials, insecure, ports
        self._stop = asyncio.Event()
        self._settings: tuple[dict[str, object], Normalised | None] = {}, None
        self._transport: Transport | None = None

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        import_torch()
        connecting = self._ports.connect(
            self._servers,
            name="evaluator",
            credentials=self._credentials,
            insecure=self._insecure,
        )
        self._transport = await unless_stopped(connecting, self._stop)
        if self._transport is None:
            return
        try:
            await self._transport.subscribe(self._subjects.evaluate, self._on_request)
            await self._stop.wait()
        finally:
            await self._transport.close()

    async def _on_request(self, message: Incoming) -> None:
        try:
            header, body = split_body(message.data)
            request = Evaluate.model_validate_json(header)
            model = bytes(body)
            if request.object_name is not None:
                assert self._transport is not None
                bucket = self._subjects.models_bucket
                model = await self._transport.get_object(bucket, request.object_name, MOST_MODEL_BYTES)
            found = await self._ports.in_a_thread(self._evaluate, (request.config, request.normalisation), model)
            answer: Evaluated | NotEvaluated = found
        except Exception as error:  # whatever it is, the edge server does not wait for an answer that never comes
            expected = isinstance(error, ValidationError | ObjectError | UnfitError | FedtwinError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}"
            say(logging.WARNING, "cannot evaluate", reason=reason)
            answer = NotEvaluated(reason=reason[:500])
        with suppress(Exception):
            await message.respond(answer.encoded())

    def _evaluate(self, asked: tuple[dict[str, object], Normalised | None], model: bytes) -> Evaluated:
        if asked != self._settings:
            self._prepare(with_code_in(self._code, Config.model_validate(asked[0])), asked[1])
            self._settings = asked
        found = self._trainer.evaluate(self._codec.decode_own(model))
        accuracy = found.test_metric if self._task.is_accuracy else None
        return Evaluated(test_loss=found.test_loss, test_accuracy=accuracy, test_metric=found.test_metric)

    def _prepare(self, config: Config, normalisation: Normalised | None) -> None:
        from fedtwin.learning.data import load_dataset
        from fedtwin.learning.executors import make_workload
        from fedtwin.learning.local import Images, LocalTrainer

        if config.learning is None:
            raise FedtwinError("The run has no [learning] section: there is nothing to evaluate.")
        self._task = task_of(config.learning)
        data = load_dataset(self._data or config.learning.dataset, config.learning, ("test",)).normalised(normalisation)
        workload = make_workload(config, data.shape, data.outputs)
        workload.check(())
        self._trainer = LocalTrainer(workload.network(), Images(data), config.learning, config.code.folder)
        self._codec = Codec(workload.initial()[0])


def import_torch() -> None:
    try:
        import torch
    except ImportError:
        raise FedtwinError("Evaluation needs PyTorch: pip install 'fedtwin[learn]'.") from None
    torch.set_num_threads(1)


def initial_model(config: Config) -> bytes:
    """The model everybody starts from, as bytes: the same as a simulation of the configuration starts from."""
    return made_for_the_data(config)[1]


def made_for_the_data(config: Config) -> tuple[int, bytes]:
    """Its outputs, as the run's data set has them, and the model."""
    import_torch()
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.elsewhere import require_the_same_elsewhere
    from fedtwin.learning.executors import make_workload

    if config.learning is None:
        raise FedtwinError("The configuration has no [learning] section: give --initial FILE.safetensors.")
    data = load_dataset(config.learning.dataset, config.learning, ("test",))
    workload = make_workload(config, data.shape, data.outputs)
    workload.check(())
    require_the_same_elsewhere(workload)
    layout, weights = workload.initial()
    return data.outputs, Codec(layout).encode(weights)
