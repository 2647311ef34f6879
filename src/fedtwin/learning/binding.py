"""A network whose tensors are views of flat vectors, and are brought back there when its own code has bound others.

``self.centre = 0.9 * self.centre + …`` and ``self.weight.data = …`` are ordinary PyTorch, and leave the old memory behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedtwin.errors import FedtwinError

WHOLE_NUMBERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def state_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters first, then buffers, each tensor once: the order of the flat vectors."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def unfit(model: nn.Module) -> str | None:
    """Which tensor has no place in the flat vectors, and why."""
    for name, tensor in state_tensors(model).items():
        kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
        if is_lazy(tensor):
            return f"the lazy {kind} {name} has no shape: no forward pass has reached it"
        if tensor.dtype != torch.float32 and (kind == "parameter" or tensor.dtype not in WHOLE_NUMBERS):
            return (
                f"the {kind} {name} is {tensor.dtype}: parameters are torch.float32, buffers torch.float32, torch.bool, "
                "torch.uint8 or signed integers"
            )
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return f"the {kind} {name} is a {tensor.layout} tensor on {tensor.device}: a factory makes dense ones on the CPU"
    return None


@dataclass
class _Buffer:
    """A buffer: the network's own tensor, its place in a vector, and where the network holds it, tied ones in many places."""

    name: str
    own: Tensor
    view: Tensor
    places: list[tuple[nn.Module, str]] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)


class Binding:
    """One network in the flat vectors that ``views`` and ``gradients`` point into. ``setting`` begins the sentence of an error.

    A buffer of another type than its vector (a flag, a mask) is copied there and back.
    """

    def __init__(self, model: nn.Module, views: Mapping[str, Tensor], gradients: Mapping[str, Tensor], setting: str) -> None:
        self._model, self._setting = model, setting
        self._parameters = dict(model.named_parameters())
        self._views, self._gradients = views, gradients
        buffers = {id(own): _Buffer(name, own, views[name]) for name, own in model.named_buffers()}
        for prefix, module in model.named_modules():
            for name, own in module._buffers.items():
                if own is not None:
                    buffers[id(own)].places.append((module, name))
                    buffers[id(own)].aliases.append(f"{prefix}.{name}" if prefix else name)
        self._buffers = list(buffers.values())
        for name, parameter in self._parameters.items():
            parameter.data = views[name]
            parameter.grad = gradients[name]
        self.load()

    def load(self) -> None:
        """The network computes with what the vectors hold."""
        for name, parameter in self._parameters.items():
            if not _lies_in(parameter, self._views[name]):
                parameter.data = self._views[name]
        for buffer in self._buffers:
            for module, name in buffer.places:
                module._buffers[name] = buffer.own
            if buffer.own.dtype != buffer.view.dtype:
                buffer.own.copy_(buffer.view)
            elif not _lies_in(buffer.own, buffer.view):
                buffer.own.data = buffer.view

    def keep_parameters(self) -> None:
        """After a forward pass, before the vectors are read or changed: they hold the network's parameters."""
        for name, parameter in self._parameters.items():
            view = self._views[name]
            if not _lies_in(parameter, view):
                self._require_alike(f"the parameter {name}", parameter, view, view.dtype)
                view.copy_(parameter.data.clone())
                parameter.data = view

    def keep_buffers(self) -> None:
        """After a training: the vectors hold the network's buffers."""
        for buffer in self._buffers:
            found = [module._buffers.get(name) for module, name in buffer.places]
            now = found[0]
            if now is None:
                raise FedtwinError(f"{self._setting}: the buffer {buffer.name} disappears in training.")
            if any(other is not now for other in found):
                both = " and ".join(buffer.aliases)
                raise FedtwinError(f"{self._setting}: the buffers {both}, which were one tensor, become two in training.")
            if now.dtype != buffer.view.dtype or not _lies_in(now, buffer.view):
                self._require_alike(f"the buffer {buffer.name}", now, buffer.view, buffer.own.dtype)
                buffer.view.copy_(now.detach().clone())

    def require_the_same_tensors(self) -> None:
        """Whether a training has left the network the parameters and buffers, and the gradients their places, it began with."""
        for name, parameter in self._model.named_parameters():
            if self._parameters.get(name) is not parameter or parameter.grad is not self._gradients[name]:
                raise FedtwinError(f"{self._setting}: the parameter {name} is replaced, or its gradient, in training.")
        known = {alias for buffer in self._buffers for alias in buffer.aliases}
        for prefix, module in self._model.named_modules():
            for part, own in module._buffers.items():
                name = f"{prefix}.{part}" if prefix else part
                if own is not None and name not in known:
                    raise FedtwinError(f"{self._setting}: the buffer {name} appears only in training.")

    def _require_alike(self, what: str, tensor: Tensor, view: Tensor, dtype: torch.dtype) -> None:
        if tensor.shape != view.shape or tensor.dtype != dtype:
            became, was = (f"{kind} of shape {tuple(of.shape)}" for kind, of in ((tensor.dtype, tensor), (dtype, view)))
            raise FedtwinError(f"{self._setting}: {what} becomes {became} in training, and was {was}.")


def _lies_in(tensor: Tensor, view: Tensor) -> bool:
    """The same numbers in the same order: a transposed matrix begins at the same place."""
    return tensor.data_ptr() == view.data_ptr() and tensor.stride() == view.stride()
