"""``export``: a run's model as one file that needs no fedtwin: samples as a sensor gives them go in, outputs come out.

The normalisation is inside. A file is left on disk only after it has given what PyTorch gives.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedtwin.errors import FedtwinError
from fedtwin.extras import require
from fedtwin.files import whole_file
from fedtwin.learning.card import KEY, ModelCard, Which
from fedtwin.learning.data import Dataset
from fedtwin.learning.global_loss import one_thread
from fedtwin.learning.local import EVALUATION_BATCH, Images
from fedtwin.learning.normalisation import Normalisation
from fedtwin.learning.objectives import objective_of
from fedtwin.model_out.predicting import network_of, samples_for
from fedtwin.model_out.saved import SavedModel, open_model
from fedtwin.usercode import sentence_of_error

Format = Literal["onnx", "torch"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
Samples = NDArray[np.float32]
Outputs = Callable[[Samples], Samples]
TOLERANCE, BATCHES = 1e-4, (1, 2, 7, 64)


@dataclass(frozen=True)
class Exported:
    """``largest_difference`` from PyTorch's outputs, on samples drawn by the normalisation, as a share of their size.

    ``test_metric``: the file's own on the data it was checked with.
    """

    path: Path
    card: ModelCard
    largest_difference: float
    test_metric: float | None = None


class Raw(nn.Module):
    """The network behind its normalisation: rows and windows as they are, images (count, height, width, channels)."""

    mean: Tensor
    scale: Tensor
    target_mean: Tensor
    target_std: Tensor

    def __init__(self, network: nn.Module, card: ModelCard) -> None:
        super().__init__()
        assert card.shape is not None and card.normalisation is not None
        by = Normalisation.from_json(card.normalisation)
        self.network, self._images = network, card.input == "images"
        per_channel = (-1, *[1] * (len(card.shape) - 1))
        self.register_buffer("mean", torch.tensor(by.mean, dtype=torch.float32).view(per_channel))
        self.register_buffer("scale", (1.0 / torch.tensor(by.std, dtype=torch.float32)).view(per_channel))
        self._in_units = card.task == "regression"
        if self._in_units:
            self.register_buffer("target_mean", torch.tensor(by.target_mean, dtype=torch.float32))
            self.register_buffer("target_std", torch.tensor(by.target_std, dtype=torch.float32))

    def forward(self, samples: Tensor) -> Tensor:
        x = samples.permute(0, 3, 1, 2) if self._images else samples
        outputs: Tensor = self.network((x - self.mean) * self.scale)
        return outputs * self.target_std + self.target_mean if self._in_units else outputs


def export(
    folder: Path,
    form: Format,
    out: Path,
    *,
    which: Which = "served",
    code: Path | None = None,
    trust: bool = False,
    data: str | None = None,
) -> Exported:
    """``data``: samples with targets on which the file is measured too, by the run's metric."""
    if form == "onnx":
        require("fedtwin export --format onnx", "export", "onnx", "onnxruntime", "onnxscript")
    if out.exists():
        raise FedtwinError(f"--out {str(out)!r} exists already: name a file that does not, nothing is overwritten.")
    saved = open_model(folder, which, code=code, trust=trust)
    needed = saved.without_targets() if data is None else saved
    own = needed.require_code()
    raw = Raw(network_of(saved, own), saved.card).eval()
    try:
        with one_thread(), torch.no_grad(), whole_file(out) as draft:
            outputs = _written(form, raw, saved.card, draft)
            largest = _largest_difference(raw, saved.card, outputs, str(out))
            metric = None if data is None else _measured(saved, data, outputs, own)
    except OSError as error:
        raise FedtwinError(f"--out {str(out)!r} cannot be written: {error.strerror or error}.") from None
    return Exported(out, saved.card, largest, metric)


def _written(form: Format, raw: Raw, card: ModelCard, draft: Path) -> Outputs:
    """The file, and what gives its outputs."""
    example = torch.from_numpy(_drawn(card, 2))
    with _quietly():
        try:
            program = torch.export.export(raw, (example,), dynamic_shapes=({0: torch.export.Dim("samples")},))
            if form == "torch":
                torch.export.save(program, draft, extra_files={f"{KEY}.json": card.metadata[KEY]})
                again = torch.export.load(draft).module()
                return lambda x: np.asarray(again(torch.from_numpy(x)).numpy())
            return _written_as_onnx(program, card, draft)
        except OSError:
            raise
        except Exception as error:
            raise FedtwinError(f"learning.model = {card.model!r} cannot be exported: {sentence_of_error(error)}.") from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what PyTorch says of itself on the way."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _written_as_onnx(program: Any, card: ModelCard, draft: Path) -> Outputs:
    import onnx
    import onnxruntime

    made = torch.onnx.export(program, dynamo=True, input_names=["samples"], output_names=["outputs"], verbose=False)
    assert made is not None
    model = made.model_proto
    onnx.helper.set_model_props(model, card.metadata)
    onnx.checker.check_model(model, full_check=True)
    draft.write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(draft.read_bytes(), options, providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(["outputs"], {"samples": x})[0])


def _largest_difference(raw: Raw, card: ModelCard, outputs: Outputs, out: str) -> float:
    largest = 0.0
    for count in BATCHES:
        samples = _drawn(card, count)
        ours, theirs = raw(torch.from_numpy(samples)).numpy(), outputs(samples)
        size = max(float(np.abs(ours).max()), 1e-6)
        largest = max(largest, float(np.abs(ours - theirs).max()) / size) if ours.shape == theirs.shape else np.inf
        if not largest <= TOLERANCE:
            raise FedtwinError(
                f"{out!r} is not written: on {count} samples it differs from PyTorch by {largest:.2g} of the outputs' size, "
                f"and {TOLERANCE:g} is allowed."
            )
    return largest


def _drawn(card: ModelCard, count: int) -> Samples:
    """Samples as the normalisation says they are, with the axes of the data."""
    assert card.shape is not None and card.normalisation is not None
    mean, std = (np.array(card.normalisation[name]).reshape(-1, *[1] * (len(card.shape) - 1)) for name in ("mean", "std"))
    x = np.asarray(mean + std * np.random.default_rng(count).normal(size=(count, *card.shape)), np.float32)
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if card.input == "images" else x


def _measured(saved: SavedModel, data: str, outputs: Outputs, code_folder: str | None) -> float:
    samples, labelled = samples_for(saved, data)
    if not labelled:
        raise FedtwinError(f"--data {data!r} has no targets: there is nothing to measure the file by.")
    images, objective = Images(samples), objective_of(saved.card.learning, code_folder)
    given = torch.from_numpy(np.concatenate([outputs(x) for x in _batches(samples)]))
    return objective.metric(given, images.in_units(images.y_test))


def _batches(samples: Dataset) -> list[Samples]:
    x = np.asarray(samples.x_test, np.float32)
    return [x[first : first + EVALUATION_BATCH] for first in range(0, len(x), EVALUATION_BATCH)]
