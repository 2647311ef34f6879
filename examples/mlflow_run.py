"""A training run in MLflow: its settings, its accuracy as it grows, its summary and its records.

    python examples/mlflow_run.py --rounds 300
    MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri out/mlflow    # needs the whole of mlflow

Needs PyTorch and MLflow (mlflow-skinny is enough to write): pip install 'fedtwin[learn,examples]'.
"""

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # plain files; a server or database of yours needs no such word

import mlflow

import fedtwin
from fedtwin.config import settings as settings_of
from fedtwin.learning.evaluation import Evaluation


class MLflow(fedtwin.Callback):
    """Writes into the run of MLflow that is open; the steps are rounds."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        metrics = {"accuracy": evaluation.test_accuracy or 0.0, "loss": evaluation.test_loss, "energy_j": evaluation.energy_j}
        mlflow.log_metrics(metrics, step=evaluation.round)

    def on_end(self, result: fedtwin.Result) -> None:
        mlflow.log_params(settings_of(result.config))
        mlflow.set_tag("config_hash", result.identity.hash)
        numbers = {name: value for name, value in result.summary.as_dict().items() if value is not None}
        mlflow.log_metrics({f"summary.{name}": float(value) for name, value in numbers.items()})
        if result.folder is not None:
            mlflow.log_artifacts(str(result.folder), "records")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rounds", type=int, default=1000)
    options.add_argument("--out", type=Path, default=Path("out/mlflow"))
    given = options.parse_args()
    mlflow.set_tracking_uri(given.out.resolve().as_uri())
    mlflow.set_experiment("fedtwin")
    settings = {"run.rounds": given.rounds, "learning.dataset": "digits", "learning.learning_rate": 0.1}
    with mlflow.start_run(run_name="CU-UCB on the digits"), TemporaryDirectory() as folder:
        result = fedtwin.simulate(settings, callbacks=[MLflow()], out=Path(folder) / "run")
    print(f"Accuracy {result.summary.test_accuracy:.3f}; the run is in {given.out}.")


if __name__ == "__main__":
    main()
