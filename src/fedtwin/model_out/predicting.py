"""``predict``: a run's model on samples, normalised as the run did; where they have targets, by the run's loss and metric."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedtwin.errors import FedtwinError
from fedtwin.learning.binding import state_tensors
from fedtwin.learning.card import ModelCard, Which
from fedtwin.learning.data import Dataset, load_samples, other_features
from fedtwin.learning.global_loss import one_thread
from fedtwin.learning.local import Images, LocalTrainer, model_layout
from fedtwin.learning.models import build_model
from fedtwin.learning.objectives.objective import objective_of
from fedtwin.learning.trial import errors_as_sentences
from fedtwin.model_out.saved import SavedModel, open_model
from fedtwin.registry import METRICS


@dataclass(frozen=True)
class Predictions:
    """``predicted``: the class of every sample, 0 or 1 for every label, or the targets in the units of the data.

    ``outputs`` are the network's, before softmax and sigmoid. Loss and metric are None where the samples have no targets.
    ``by_target`` is the metric of every target, or label, alone, where there are several and the metric is one of ours.
    """

    card: ModelCard
    predicted: NDArray[Any]
    outputs: NDArray[np.float32]
    test_loss: float | None = None
    test_metric: float | None = None
    by_target: tuple[float, ...] | None = None


def predict(folder: Path, data: str, *, which: Which = "served", code: Path | None = None, trust: bool = False) -> Predictions:
    """By the very computation of the run's own evaluations on the CPU: on the same test set it gives the same bits."""
    saved = open_model(folder, which, code=code, trust=trust)
    samples, labelled = samples_for(saved, data)
    needed = saved if labelled else saved.without_targets()
    learning, own = needed.card.learning, needed.require_code()
    with one_thread(), errors_as_sentences(saved.card.model):
        network = build_model(saved.card.model, samples.shape, learning.outputs, 0, own)
        trainer = LocalTrainer(network, Images(samples), learning, own)
        measured, outputs = trainer.predict(model_layout(network).pack(saved.tensors))
    found = outputs.numpy()
    predicted = decided(saved.card.task, found)
    if not labelled:
        return Predictions(saved.card, predicted, found)
    alone = metric_by_target(saved.card, outputs, torch.from_numpy(samples.y_test))
    return Predictions(saved.card, predicted, found, measured.test_loss, measured.test_metric, alone)


def metric_by_target(card: ModelCard, outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, ...] | None:
    """Targets may be in units of their own: one figure over all of them is that of the largest."""
    if card.task == "classification" or outputs.shape[1] == 1 or card.metric not in METRICS:
        return None
    metric = objective_of(card.learning).metric
    return tuple(metric(outputs[:, k : k + 1], targets[:, k : k + 1]) for k in range(outputs.shape[1]))


def samples_for(saved: SavedModel, data: str) -> tuple[Dataset, bool]:
    """Samples of the shape that the model takes, by the run's normalisation, and whether they have targets."""
    card = saved.card
    if card.outputs is None or card.normalisation is None:
        raise FedtwinError(
            f"{str(saved.path)!r} does not say what it was trained on: the edge server had neither the test set nor a "
            "normalisation."
        )
    samples, labelled = load_samples(data, card.learning)
    if card.shape is not None and samples.shape != card.shape:
        raise FedtwinError(f"DATA = {data!r} has samples of shape {samples.shape}, and the model takes {card.shape}.")
    if card.features and samples.features and (others := other_features(samples.features, card.features)) is not None:
        raise FedtwinError(f"DATA = {data!r} has the features {others[0]}, where the model takes {others[1]}.")
    return samples.normalised(card.normalisation), labelled


def network_of(saved: SavedModel, code_folder: str | None) -> nn.Module:
    """The network with its weights, to be used, not trained."""
    card = saved.card
    if card.shape is None or card.outputs is None or card.normalisation is None:
        raise FedtwinError(f"{str(saved.path)!r} does not say what samples it takes: the edge server had no test set.")
    network = build_model(card.model, card.shape, card.outputs, 0, code_folder)
    if reason := model_layout(network).misfit(saved.tensors):
        raise FedtwinError(f"{str(saved.path)!r} does not fit learning.model = {saved.card.model!r}: {reason}.")
    with torch.no_grad():
        for name, tensor in state_tensors(network).items():
            tensor.copy_(torch.from_numpy(saved.tensors[name]))
    return network.eval()


def decided(task: str, outputs: NDArray[np.float32]) -> NDArray[Any]:
    if task == "classification":
        return np.asarray(outputs.argmax(1))
    return (outputs > 0.0).astype(np.int64) if task == "multilabel" else outputs
