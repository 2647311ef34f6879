"""The evaluation worker of a simulated fleet: the real one, with another arithmetic in place of PyTorch's."""

from fedtwin.live.server.evaluator import Evaluator
from fedtwin.live.wire.protocol import Evaluated, Normalised
from fedtwin.live.wire.tensors import read_model
from tests.live.simulated.life import Life, Supervised
from tests.live.simulated.stations import SERVERS


class MarksReader(Evaluator):
    """Its loss is the sum of all marks: by that it can be told which model was evaluated."""

    def _evaluate(self, asked: tuple[dict[str, object], Normalised | None], model: bytes) -> Evaluated:  # noqa: ARG002
        _, weights = read_model(model, "evaluation")
        return Evaluated(test_loss=float(weights.floats.sum()), test_accuracy=0.5)


async def evaluating(life: Life) -> bool:
    await MarksReader(SERVERS, "main", ports=life.ports).run()
    return False


class SimulatedWorker:
    """As the edge server sees it: somebody else starts it again."""

    def __init__(self, evaluator: Supervised) -> None:
        self._evaluator, self._seen = evaluator, evaluator.life

    def look_after(self) -> bool:
        seen, self._seen = self._seen, self._evaluator.life
        return self._seen is not seen

    def end(self) -> None:
        self._evaluator.life.kill()
