"""The evaluation worker: has PyTorch and the test set, and answers with loss and accuracy."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.live.logs import say
from fedtwin.live.wire.ports import Incoming, ObjectError, Ports, Transport
from fedtwin.live.wire.protocol import Evaluate, Evaluated, NotEvaluated, Subjects, split_body
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
        self._settings: dict[str, object] = {}
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
            found = await self._ports.in_a_thread(self._evaluate, request.config, model)
            answer: Evaluated | NotEvaluated = found
        except Exception as error:  # whatever it is, the edge server does not wait for an answer that never comes
            expected = isinstance(error, ValidationError | ObjectError | UnfitError | FedtwinError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}"
            say(logging.WARNING, "cannot evaluate", reason=reason)
            answer = NotEvaluated(reason=reason[:500])
        with suppress(Exception):
            await message.respond(answer.encoded())

    def _evaluate(self, settings: dict[str, object], model: bytes) -> Evaluated:
        if settings != self._settings:
            self._prepare(with_code_in(self._code, Config.model_validate(settings)))
            self._settings = settings
        found = self._trainer.evaluate(self._codec.decode_own(model))
        return Evaluated(test_loss=found.test_loss, test_accuracy=found.test_accuracy)

    def _prepare(self, config: Config) -> None:
        from fedtwin.learning.data import load_dataset
        from fedtwin.learning.executors import make_workload
        from fedtwin.learning.local import Images, LocalTrainer

        if config.learning is None:
            raise FedtwinError("The run has no [learning] section: there is nothing to evaluate.")
        data = load_dataset(self._data or config.learning.dataset)
        workload = make_workload(config, data.image_shape, data.classes)
        workload.check(())
        self._trainer = LocalTrainer(workload.network(), Images(data), config.learning)
        self._codec = Codec(workload.initial()[0])


def import_torch() -> None:
    try:
        import torch
    except ImportError:
        raise FedtwinError("Evaluation needs PyTorch: pip install 'fedtwin[learn]'.") from None
    torch.set_num_threads(1)


def initial_model(config: Config) -> bytes:
    """The model everybody starts from, as bytes: the same as a simulation of the configuration starts from."""
    import_torch()
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.elsewhere import require_the_same_elsewhere
    from fedtwin.learning.executors import make_workload

    if config.learning is None:
        raise FedtwinError("The configuration has no [learning] section: give --initial FILE.safetensors.")
    data = load_dataset(config.learning.dataset)
    workload = make_workload(config, data.image_shape, data.classes)
    workload.check(())
    require_the_same_elsewhere(workload)
    layout, weights = workload.initial()
    return Codec(layout).encode(weights)
