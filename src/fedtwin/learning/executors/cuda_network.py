"""A network for many clients at once: every client has weights of its own, one operation serves them all.

Activations are (client, image, height, width, channel); ``counts`` says how many images of each client are real, the first
ones; the rest is padding, and no statistic, loss or gradient sees it. Convolutions between wide layers, and the norms between
them, run in the kernels of ``kernels`` when these are there (``Stack.halves``); everything else is plain PyTorch, which
runs anywhere and is what the kernels are tested against.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtwin.learning.models import Block

WIDE = 64
NARROW = 16
MOST_IN_A_GROUP = 1 << 15


@dataclass
class Stack:
    """The state of all clients for one batch: views into flat vectors (client, …), convolutions with channels last."""

    tensors: dict[str, Tensor]
    gradients: dict[str, Tensor]
    halves: dict[str, Tensor]
    counts: Tensor
    training: bool


def can_stack(model: nn.Module) -> bool:
    """Whether every part of the network is known here, nothing is tied and nothing frozen; otherwise its clients are trained
    one by one."""
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    frozen = any(not parameter.requires_grad for parameter in model.parameters())
    tied = len(names) != len(list(model.named_parameters()))
    return not frozen and not tied and all(_known(module) for module in model.modules())


def wide_convolutions(model: nn.Module) -> set[str]:
    """The weights of the convolutions that have a kernel of their own."""
    return {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Conv2d) and _is_wide(module)}


def kernels() -> Any:
    """The GPU kernels: imported when first used, for Triton is there on few machines."""
    from fedtwin.learning.executors import kernels as triton_kernels

    return triton_kernels


def forward(model: nn.Module, x: Tensor, stack: Stack) -> Tensor:
    """Outputs (client, image, class) from images (client, image, height, width, channel)."""
    return _apply(model, "", x, stack)


def _apply(module: nn.Module, name: str, x: Tensor, stack: Stack) -> Tensor:
    if isinstance(module, nn.Sequential):
        return _sequence(module, name, x, stack)
    if isinstance(module, Block):
        return _block(module, name, x, stack)
    if isinstance(module, nn.Conv2d):
        return convolution(module, name, x, stack)
    if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
        return norm(module, name, x, stack)
    if isinstance(module, nn.Linear):
        return _linear(module, name, x, stack)
    if isinstance(module, nn.MaxPool2d):
        pooled = module(x.flatten(0, 1).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return cast(Tensor, pooled.reshape(*x.shape[:2], *pooled.shape[1:]))
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return x.mean((2, 3), keepdim=True, dtype=torch.float32)
    if isinstance(module, nn.Flatten):
        return x.permute(0, 1, 4, 2, 3).flatten(2).float() if x.ndim == 5 else x
    return functional.relu(x) if isinstance(module, nn.ReLU) else x


def _sequence(module: nn.Sequential, name: str, x: Tensor, stack: Stack) -> Tensor:
    """A norm takes the ReLU behind it along."""
    children = list(module.named_children())
    for i, (child, part) in enumerate(children):
        behind = children[i + 1][1] if i + 1 < len(children) else None
        before = children[i - 1][1] if i else None
        if isinstance(part, nn.BatchNorm2d | nn.GroupNorm) and isinstance(behind, nn.ReLU):
            x = norm(part, _join(name, child), x, stack, relu=True)
        elif not (isinstance(part, nn.ReLU) and isinstance(before, nn.BatchNorm2d | nn.GroupNorm)):
            x = _apply(part, _join(name, child), x, stack)
    return x


def _block(block: Block, name: str, x: Tensor, stack: Stack) -> Tensor:
    y = _apply(block.conv1, _join(name, "conv1"), x, stack)
    y = norm(block.norm1, _join(name, "norm1"), y, stack, relu=True)
    y = _apply(block.conv2, _join(name, "conv2"), y, stack)
    short = _apply(block.shortcut, _join(name, "shortcut"), x, stack)
    return norm(block.norm2, _join(name, "norm2"), y, stack, relu=True, residual=short)


def _linear(module: nn.Linear, name: str, x: Tensor, stack: Stack) -> Tensor:
    weight = stack.tensors[_join(name, "weight")].transpose(1, 2)
    if module.bias is None:
        return torch.bmm(x, weight)
    return torch.baddbmm(stack.tensors[_join(name, "bias")][:, None], x, weight)


def convolution(module: nn.Conv2d, name: str, x: Tensor, stack: Stack) -> Tensor:
    key = _join(name, "weight")
    weight, half, gradient = stack.tensors[key], stack.halves.get(key), stack.gradients.get(key)
    if half is None and stack.halves and _is_entry(module):
        x, weight = (functional.pad(tensor, (0, NARROW - module.in_channels)) for tensor in (x, weight))
        gradient = None
    elif half is None:
        return _with_bias(module, name, plain_convolution(module, x, weight), stack)
    y = kernels().Convolution.apply(x, weight, half, gradient, stack.counts, module.stride[0], module.padding[0])
    return _with_bias(module, name, y, stack)


def _with_bias(module: nn.Conv2d, name: str, y: Tensor, stack: Stack) -> Tensor:
    return y if module.bias is None else y + stack.tensors[_join(name, "bias")].to(y.dtype)[:, None, None, None]


def plain_convolution(module: nn.Conv2d, x: Tensor, weight: Tensor) -> Tensor:
    """Patches times weights."""
    size, padding, stride = module.kernel_size, cast(tuple[int, int], module.padding), module.stride
    patches = functional.unfold(x.flatten(0, 1).permute(0, 3, 1, 2), size, padding=padding, stride=stride)
    rows = patches.view(*x.shape[:2], *patches.shape[1:]).transpose(2, 3).flatten(1, 2)
    y = torch.bmm(rows, weight.to(x.dtype).permute(0, 4, 2, 3, 1).flatten(1, 3))
    height = (x.shape[2] + 2 * padding[0] - size[0]) // stride[0] + 1
    return y.view(*x.shape[:2], height, -1, weight.shape[1])


def norm(
    module: nn.Module, name: str, x: Tensor, stack: Stack, *, relu: bool = False, residual: Tensor | None = None
) -> Tensor:
    """BatchNorm or GroupNorm, then the residual, then the ReLU."""
    fused = bool(stack.halves) and x.dtype == torch.bfloat16 and x.shape[-1] % WIDE == 0
    if isinstance(module, nn.BatchNorm2d):
        if fused:
            return _fused_batch_norm(module, name, x, stack, residual, relu)
        y = plain_batch_norm(module, name, x, stack)
    else:
        module = cast(nn.GroupNorm, module)
        if fused and _fits(module, x):
            return _fused_group_norm(module, name, x, stack, residual, relu)
        y = plain_group_norm(module, name, x, stack)
    y = y if residual is None else y + residual.float()
    return (functional.relu(y) if relu else y).to(x.dtype)


def _fused_batch_norm(
    module: nn.BatchNorm2d, name: str, x: Tensor, stack: Stack, residual: Tensor | None, relu: bool
) -> Tensor:
    weight, bias, mean, var = (stack.tensors[_join(name, part)] for part in ("weight", "bias", "running_mean", "running_var"))
    if not stack.training:
        scale = torch.rsqrt(var + module.eps)
        return cast(Tensor, kernels().normalise(x, residual, mean.contiguous(), scale, weight, bias, stack.counts, relu))
    gradients = (stack.gradients[_join(name, part)] for part in ("weight", "bias"))
    constants = (stack.counts, module.eps, module.momentum, relu)
    return cast(Tensor, kernels().BatchNorm.apply(x, residual, weight, bias, *gradients, mean, var, *constants))


def _fused_group_norm(module: nn.GroupNorm, name: str, x: Tensor, stack: Stack, residual: Tensor | None, relu: bool) -> Tensor:
    parameters = (stack.tensors[_join(name, part)] for part in ("weight", "bias"))
    gradients = (stack.gradients.get(_join(name, part)) for part in ("weight", "bias"))
    constants = (stack.counts, module.num_groups, module.eps, relu)
    return cast(Tensor, kernels().GroupNorm.apply(x, residual, *parameters, *gradients, *constants))


def _fits(module: nn.GroupNorm, x: Tensor) -> bool:
    """The kernel holds a group of one image in registers; its channels must be a power of two."""
    each = module.num_channels // module.num_groups
    return each & (each - 1) == 0 and x.shape[2] * x.shape[3] * each <= MOST_IN_A_GROUP


def plain_batch_norm(module: nn.BatchNorm2d, name: str, x: Tensor, stack: Stack) -> Tensor:
    """BatchNorm over the real images of each client; the running variance takes the unbiased one, as PyTorch's does."""
    weight, bias, running_mean, running_var = (
        stack.tensors[_join(name, part)] for part in ("weight", "bias", "running_mean", "running_var")
    )
    x = x.float()
    mean, var = running_mean, running_var
    if stack.training:
        real = (torch.arange(x.shape[1], device=x.device) < stack.counts[:, None])[:, :, None, None, None]
        n = (stack.counts * math.prod(x.shape[2:4])).to(torch.float32)[:, None]
        mean = torch.where(real, x, 0.0).sum((1, 2, 3)) / n
        centred = torch.where(real, x - mean[:, None, None, None], 0.0)
        var = centred.square().sum((1, 2, 3)) / n
        with torch.no_grad():
            momentum = cast(float, module.momentum)
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var * (n / (n - 1).clamp(min=1)), momentum)
    slope = weight * torch.rsqrt(var + module.eps)
    return (x - mean[:, None, None, None]) * slope[:, None, None, None] + bias[:, None, None, None]


def plain_group_norm(module: nn.GroupNorm, name: str, x: Tensor, stack: Stack) -> Tensor:
    """GroupNorm sees one image at a time, so padding does no harm."""
    grouped = x.float().view(*x.shape[:4], module.num_groups, -1)
    var, mean = torch.var_mean(grouped, (2, 3, 5), correction=0, keepdim=True)
    normal = ((grouped - mean) * torch.rsqrt(var + module.eps)).view(x.shape)
    weight, bias = (stack.tensors[_join(name, part)][:, None, None, None] for part in ("weight", "bias"))
    return normal * weight + bias


def _known(module: nn.Module) -> bool:
    """Exact types only: a subclass may compute anything."""
    kind = type(module)
    if kind is nn.Conv2d:
        plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
        return bool(plain) and isinstance(module.padding, tuple)
    if kind is nn.BatchNorm2d:
        return bool(module.affine and module.track_running_stats and module.momentum is not None)
    if kind is nn.GroupNorm:
        return bool(module.affine)
    if kind is nn.AdaptiveAvgPool2d:
        return cast(nn.AdaptiveAvgPool2d, module).output_size in (1, (1, 1))
    if kind is nn.Flatten:
        return cast(nn.Flatten, module).start_dim == 1 and cast(nn.Flatten, module).end_dim == -1
    if kind is nn.MaxPool2d:
        return not cast(nn.MaxPool2d, module).return_indices
    return kind in (nn.Sequential, Block, nn.Linear, nn.ReLU, nn.Identity)


def _is_wide(module: nn.Conv2d) -> bool:
    return _is_square(module) and module.in_channels % WIDE == 0 and module.out_channels % WIDE == 0


def _is_entry(module: nn.Conv2d) -> bool:
    """From the few channels of an image to many: the kernels take it with the image's channels padded."""
    return _is_square(module) and module.in_channels <= NARROW and module.out_channels % WIDE == 0


def _is_square(module: nn.Conv2d) -> bool:
    return all(len(set(value)) == 1 for value in (module.kernel_size, module.stride, module.padding))


def _join(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part
