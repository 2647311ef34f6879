"""The global loss of the paper and its gradient, over all samples that the devices own (Section III-B, Theorem 1)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedtwin.learning.binding import state_tensors
from fedtwin.learning.chance import seeded
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.layout import Weights
from fedtwin.learning.local import EVALUATION_BATCH, Images, model_layout, outputs_of
from fedtwin.learning.partition import Indices


@dataclass(frozen=True)
class LossAndGradient:
    """L(w), and ∇L(w) as one vector over the parameters that are trained."""

    loss: float
    gradient: NDArray[np.float64]

    @property
    def norm2(self) -> float:
        return float(self.gradient @ self.gradient)


class GlobalLoss:
    """L(w) = Σ D_n L_n(w) / D, D_n the samples that device n owns: the mean over all of them, one held twice counted twice.

    The network is as in an evaluation: running statistics are used, nothing is dropped. On the CPU it is computed by one
    thread, so the bits are the same whatever computes the trainings.
    """

    def __init__(self, workload: Workload, shares: Sequence[Indices], device: str = "cpu") -> None:
        network = workload.network()
        self._layout, self._model = model_layout(network), network.to(device).eval()
        self._images = Images(workload.data(), device)
        self._objective = workload.objective()
        owned, times = np.unique(np.concatenate(shares), return_counts=True)
        self._owned = torch.from_numpy(owned).to(device)
        self._weights = torch.from_numpy(times / times.sum()).float().to(device)
        self._generators = [] if device == "cpu" else [device]

    def at(self, weights: Weights) -> LossAndGradient:
        """``weights`` are NumPy's, as ``Executor.host`` gives them."""
        self._load(weights)
        trained = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        gradients = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in trained]
        loss = 0.0
        with one_thread(), torch.enable_grad(), seeded(0, self._generators):
            for first in range(0, len(self._owned), EVALUATION_BATCH):
                batch, weight = (part[first : first + EVALUATION_BATCH] for part in (self._owned, self._weights))
                outputs = outputs_of(self._model, self._images.normalised(self._images.x_train[batch]))
                part = self._objective.each(outputs, self._images.y_train[batch]) @ weight
                loss += float(part.detach())
                for total, found in zip(gradients, torch.autograd.grad(part, trained, allow_unused=True), strict=True):
                    if found is not None:
                        total += found
        return LossAndGradient(loss, torch.cat([gradient.reshape(-1) for gradient in gradients]).cpu().numpy())

    @torch.no_grad()
    def _load(self, weights: Weights) -> None:
        tensors = state_tensors(self._model)
        for name, array in self._layout.unpack(weights).items():
            tensors[name].copy_(torch.from_numpy(array))


@contextmanager
def one_thread() -> Iterator[None]:
    """As every executor of the CPU: sums are added in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
