"""A training run in TensorBoard while it goes on: losses by upload, accuracy and energy by evaluation.

    python examples/tensorboard_run.py --rounds 300
    tensorboard --logdir out/tensorboard

Needs PyTorch and TensorBoard: pip install 'fedtwin[learn,examples]'.
"""

import argparse
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

import fedtwin
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records import Row


class TensorBoard(fedtwin.Callback):
    """Writes what it hears into a folder that TensorBoard follows; the steps are rounds."""

    def __init__(self, folder: Path) -> None:
        self.writer = SummaryWriter(folder)

    def on_round(self, row: Row) -> None:
        self.writer.add_scalar("round/total_queue", row.total_queue, row.round)
        if row.cost is not None:
            self.writer.add_scalar("round/cost", row.cost, row.round)
        if row.train_loss is not None:
            self.writer.add_scalar("round/train_loss", row.train_loss, row.round)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.writer.add_scalar("evaluation/accuracy", evaluation.test_accuracy, evaluation.round)
        self.writer.add_scalar("evaluation/loss", evaluation.test_loss, evaluation.round)
        self.writer.add_scalar("evaluation/energy_j", evaluation.energy_j, evaluation.round)
        self.writer.flush()

    def on_end(self, result: fedtwin.Result) -> None:
        settings = {"policy": result.config.policy.name, "seed": result.config.run.seed}
        self.writer.add_hparams(settings, {"hparam/accuracy": result.evaluations[-1].test_accuracy})
        for name, tensor in result.weights.items():
            self.writer.add_histogram(name, tensor)
        self.writer.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rounds", type=int, default=1000)
    options.add_argument("--out", type=Path, default=Path("out/tensorboard"))
    given = options.parse_args()
    settings = {"run.rounds": given.rounds, "learning.dataset": "digits", "learning.learning_rate": 0.1}
    result = fedtwin.simulate(settings, callbacks=[TensorBoard(given.out)])
    print(f"Accuracy {result.summary.test_accuracy:.3f}; look at it with: tensorboard --logdir {given.out}")


if __name__ == "__main__":
    main()
