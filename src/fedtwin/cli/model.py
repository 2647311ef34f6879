"""``fedtwin predict`` and ``fedtwin export``: the model of a run, used."""

import csv
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtwin.cli.options import JsonOption
from fedtwin.cli.screen import number, print_json, print_table
from fedtwin.errors import FedtwinError
from fedtwin.extras import require
from fedtwin.files import whole_file

if TYPE_CHECKING:
    from fedtwin.learning.card import ModelCard
    from fedtwin.model_out.predicting import Predictions


class Which(StrEnum):
    """The models that a run keeps."""

    SERVED, BEST, PLAIN = "served", "best", "plain"


class Format(StrEnum):
    """What a model can be exported as."""

    ONNX, TORCH = "onnx", "torch"


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
WhichOption = Annotated[
    Which, typer.Option(help="The model at the end, the best by the run's metric, or the one that was not averaged.")
]
CodeOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where code of the run's own lies; its digest must be the run's.")
]
TrustOption = Annotated[bool, typer.Option("--trust", help="Run the code that the run's folder keeps.")]


def predict(
    run: RunArgument,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A .npz or .parquet file, a folder, or the name of a data set.")],
    which: WhichOption = Which.SERVED,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="New .csv or .npz for the predictions.")] = None,
    code: CodeOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Use a run's model on samples; where they have targets, tell the run's metric."""
    _require("fedtwin predict")
    if out is not None and out.suffix not in (".csv", ".npz"):
        raise FedtwinError(f"--out {str(out)!r}: a .csv or .npz is written.")
    if out is not None and out.exists():
        raise FedtwinError(f"--out {str(out)!r} exists already: name a file that does not, nothing is overwritten.")
    from fedtwin.model_out import predicting

    found = predicting.predict(run, data, which=which.value, code=code, trust=trust)
    if out is not None:
        _write(out, found)
    name, samples = metric_name(found.card), len(found.predicted)
    if as_json:
        measured: dict[str, Any] = {} if found.test_metric is None else {name: found.test_metric, "loss": found.test_loss}
        measured |= {} if found.by_target is None else {f"{name}_by_target": list(found.by_target)}
        reported = {"reported": found.card.test_metric, "config_hash": found.card.config_hash}
        told = {"run": str(run), "which": which.value, "samples": samples, "metric": name, **measured, **reported}
        print_json({**told, "predictions": found.predicted.tolist()})
        return
    rows = [["samples", number(samples)]]
    if found.test_metric is not None and found.test_loss is not None:
        rows += [[name, number(found.test_metric, 6)], ["loss", number(found.test_loss, 6)]]
    rows += [[f"{name} of target {k}", number(alone, 6)] for k, alone in enumerate(found.by_target or ())]
    if found.card.test_metric is not None:
        rows.append([f"{name} that the run reported", number(found.card.test_metric, 6)])
    print_table(f"{which.value} model of {run}", ["", ""], rows)
    if out is not None:
        typer.echo(str(out))


def export(
    run: RunArgument,
    form: Annotated[Format, typer.Option("--format", help="ONNX, or a program of torch.export.")],
    which: WhichOption = Which.SERVED,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="New file; model.onnx or model.pt2 by default.")] = None,
    data: Annotated[str | None, typer.Option(metavar="DATA", help="Also measure the file on these samples.")] = None,
    code: CodeOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a run's model as one file that takes raw samples, checked against PyTorch before it is left."""
    _require("fedtwin export")
    from fedtwin.model_out import exporting

    path = out or Path(f"model{exporting.SUFFIXES[form.value]}")
    found = exporting.export(run, form.value, path, which=which.value, code=code, trust=trust, data=data)
    name = metric_name(found.card)
    if as_json:
        measured = {} if found.test_metric is None else {name: found.test_metric}
        told = {"file": str(path), "which": which.value, "largest_difference": found.largest_difference, "metric": name}
        print_json({**told, **measured, "reported": found.card.test_metric})
        return
    typer.echo(f"{path}: outputs as PyTorch's, to {found.largest_difference:.1g} of their size")
    if found.test_metric is not None:
        reported = found.card.test_metric
        typer.echo(f"{name} {number(found.test_metric, 6)}" + ("" if reported is None else f", reported {number(reported, 6)}"))


def metric_name(card: "ModelCard") -> str:
    """Short where it is code of the user's."""
    return card.metric.rpartition(":")[2]


def _require(command: str) -> None:
    require(command, "learn", "torch")
    require(command, "sim", "pyarrow")


def _write(path: Path, found: "Predictions") -> None:
    import numpy as np

    several = found.predicted.ndim == 2
    columns: dict[str, Any] = {"sample": range(len(found.predicted))}
    predicted = found.predicted.reshape(len(found.predicted), -1).T
    columns |= {f"predicted_{k}" if several else "predicted": column for k, column in enumerate(predicted)}
    columns |= {f"output_{k}": column for k, column in enumerate(found.outputs.T)}
    try:
        with whole_file(path) as draft:
            if path.suffix == ".npz":
                with draft.open("wb") as file:
                    np.savez(file, predicted=found.predicted, outputs=found.outputs)
                return
            with draft.open("w", newline="", encoding="utf-8") as text:
                writer = csv.writer(text)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
    except OSError as error:
        raise FedtwinError(f"--out {str(path)!r} cannot be written: {error.strerror}.") from None
