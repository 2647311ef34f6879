"""The constants of Theorem 1, measured along a run: how large single gradients are, and how fast they change."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtwin.errors import FedtwinError
from fedtwin.learning.binding import state_tensors
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.executors.serial import SerialExecutor
from fedtwin.learning.layout import Weights
from fedtwin.learning.local import Images, Trained, model_layout, needs_pairs, outputs_of
from fedtwin.learning.partition import Indices, batch_sizes

EVERY = 20
PLAIN_SGD = {
    "optimiser": "sgd",
    "weight_decay": 0.0,
    "clip_norm": 0.0,
    "rate_schedule": "constant",
    "rate_warmup_rounds": 0,
    "augment": "none",
    "compress": "none",
}


@dataclass(frozen=True)
class Constants:
    """The largest values that were met, so the constants are at least these.

    ``a1``: ‖∇l(w; x)‖² of one sample. ``a2``: ‖∇g(w; x)‖², g = l + (m/2) ‖w − w_download‖². ``beta``: the ratio of the
    change of one sample's gradient over a step to the length of the step. ``moved2``: ‖w − w_download‖² after a training.
    """

    a1: float = 0.0
    a2: float = 0.0
    beta: float = 0.0
    moved2: float = 0.0


class Probe(SerialExecutor):
    """The trainings of a run, one after the other; every twentieth is walked once more, sample by sample, and measured."""

    def __init__(self, workload: Workload, every: int = EVERY) -> None:
        for setting, of_the_theorem in PLAIN_SGD.items():
            if (found := getattr(workload.learning, setting)) != of_the_theorem:
                raise FedtwinError(f"learning.{setting} = {found!r}: Theorem 1 is of SGD, choose {of_the_theorem}.")
        super().__init__(workload)
        self.constants, self._every, self._asked = Constants(), every, 0
        self._model, self._images = workload.network().eval(), Images(workload.data())
        self._objective = workload.objective()
        self._layout, self._learning = model_layout(self._model), workload.learning
        self._pairs = needs_pairs(workload.network(), self._images, workload.learning, self._objective)

    def result(self, key: int) -> Trained:
        if self._asked % self._every == 0:
            start, lesson = self._waiting[key]
            self.walk(start, lesson.order)
        self._asked += 1
        return super().result(key)

    def walk(self, start: Weights, order: Indices) -> Tensor:
        """The local training of Section III-B by its formula; returns where it ends."""
        with torch.no_grad():
            tensors = state_tensors(self._model)
            for name, array in self._layout.unpack(start).items():
                tensors[name].copy_(torch.from_numpy(array))
        anchor = self._parameters()
        rate, pull = self._learning.learning_rate, self._learning.proximal
        sizes = batch_sizes(order.shape[1], self._learning.batch_size, pairs=self._pairs)
        for epoch in torch.from_numpy(order):
            for batch in torch.split(epoch, sizes):
                here = self._parameters()
                gradients = torch.stack([self._gradient(sample) for sample in batch])
                pulled = gradients + pull * (here - anchor)
                self._move_to(here - rate * pulled.mean(0))
                step = float((self._parameters() - here).norm())
                change = float((self._gradient(batch[0]) - gradients[0]).norm())
                self.constants = Constants(
                    max(self.constants.a1, float(gradients.square().sum(1).max())),
                    max(self.constants.a2, float(pulled.square().sum(1).max())),
                    max(self.constants.beta, change / step if step > 0.0 else 0.0),
                    self.constants.moved2,
                )
        end = self._parameters()
        found = self.constants
        self.constants = Constants(found.a1, found.a2, found.beta, max(found.moved2, float((end - anchor).square().sum())))
        return end

    def _parameters(self) -> Tensor:
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._model.parameters()])

    @torch.no_grad()
    def _move_to(self, flat: Tensor) -> None:
        at = 0
        for parameter in self._model.parameters():
            parameter.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()

    def _gradient(self, sample: Tensor) -> Tensor:
        """∇l(w; x) of one sample."""
        one = sample.reshape(1)
        with torch.enable_grad():
            outputs = outputs_of(self._model, self._images.normalised(self._images.x_train[one]))
            loss = self._objective.mean(outputs, self._images.y_train[one])
            gradients = torch.autograd.grad(loss, list(self._model.parameters()))
        return torch.cat([gradient.reshape(-1) for gradient in gradients])
