"""The Triton kernels, against plain PyTorch, on a GPU.

Those that move memory and make no matrix products can be tried without one, where Triton is installed, by its interpreter:
``TRITON_INTERPRET=1 pytest tests/learning/test_kernels.py``. It rounds to bfloat16 by cutting off, which a GPU does not, and
cannot multiply bfloat16.
"""

import os
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import nn

from fedtwin.config import LearningConfig
from fedtwin.learning.executors.cuda_descent import StepRule, descend, factors_of, numbers_of, rule_of
from fedtwin.learning.executors.cuda_network import Stack, convolution, kernels, norm
from tests.learning.test_cuda import TRAININGS

ON_A_GPU, INTERPRETED = torch.cuda.is_available(), os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if ON_A_GPU else "cpu"
needs_gpu = pytest.mark.skipif(not ON_A_GPU, reason="needs a CUDA GPU")
needs_kernels = pytest.mark.skipif(not ON_A_GPU and not INTERPRETED, reason="needs a CUDA GPU, or Triton's interpreter")


def halves_of(floats: torch.Tensor) -> torch.Tensor:
    """As the kernels round: to the nearest, or by the interpreter towards 0."""
    return ((floats.view(torch.int32) & -65536).view(torch.float32) if INTERPRETED else floats).bfloat16()


def rule_for(training: str, **more: Any) -> StepRule:
    return rule_of(LearningConfig(proximal=0.5, learning_rate=0.02, **{**TRAININGS[training], **more}))


@needs_kernels
@pytest.mark.parametrize("clip_norm", [0.0, 0.5])
@pytest.mark.parametrize("training", ["schedule", "momentum", "decay", "adam", "usual"])
def test_the_descent_kernel(training: str, clip_norm: float) -> None:
    """Against plain PyTorch over five steps, each client with a rate of its own, the last elements not parameters."""
    rule, size, wide = rule_for(training, clip_norm=clip_norm), 5000, 3000
    rule = replace(rule, rate=None)
    torch.manual_seed(0)
    floats, anchor = (torch.randn(3, 6016, device=DEVICE) for _ in range(2))
    half, plain = torch.zeros(3, wide, dtype=torch.bfloat16, device=DEVICE), floats.clone()
    states = [[torch.zeros_like(floats) for _ in range(rule.kept)] for _ in range(2)]
    before = floats.clone()
    for numbers in torch.from_numpy(numbers_of(rule, [0.02, 0.3, 0.01], 5)).to(DEVICE):
        gradient = torch.randn_like(floats) * torch.tensor([[1.0], [1e-3], [10.0]], device=DEVICE)
        kept = gradient.clone()
        factors = factors_of(rule, gradient[:, :size])
        kernels().descend(floats, anchor, gradient, half, states[0], numbers, factors, rule, size)
        descend(rule, plain[:, :size], anchor[:, :size], gradient[:, :size], [one[:, :size] for one in states[1]], numbers)
        assert torch.equal(gradient, kept)
    assert torch.equal(floats[:, size:], before[:, size:]) and torch.equal(half, halves_of(floats[:, :wide]))
    for client in range(3):
        assert relative(floats[client, :size] - before[client, :size], plain[client, :size] - before[client, :size]) < 1e-4
        for found, expected in zip(*states, strict=True):
            assert relative(found[client], expected[client]) < 1e-5 and not found[client, size:].any()


@needs_kernels
def test_the_load_kernel() -> None:
    """Every client is given its own start, as floats and as halves; those beyond keep what they have."""
    torch.manual_seed(0)
    starts = [torch.randn(5056, device=DEVICE) for _ in range(3)]
    floats, anchor = (torch.ones(4, 5056, device=DEVICE) for _ in range(2))
    half = torch.ones(4, 3000, dtype=torch.bfloat16, device=DEVICE)
    kernels().load(starts, floats, anchor, half)
    for client, start in enumerate(starts):
        assert torch.equal(floats[client], start) and torch.equal(anchor[client], start)
        assert torch.equal(half[client], halves_of(start[:3000]))
    assert (floats[3] == 1).all() and (anchor[3] == 1).all() and (half[3] == 1).all()


@needs_kernels
def test_the_descent_kernel_gives_the_bits_it_gave_before_it_read_its_rate_from_memory() -> None:
    from tests.learning import descent_as_it_was

    rule, size = rule_for("clip", clip_norm=0.0), 5000
    torch.manual_seed(0)
    floats, anchor, gradient = (torch.randn(3, 5056, device=DEVICE) for _ in range(3))
    half, expected = torch.zeros(3, 3000, dtype=torch.bfloat16, device=DEVICE), floats.clone()
    numbers = torch.from_numpy(numbers_of(rule, [0.02] * 3, 1)).to(DEVICE)[0]
    cast(Any, descent_as_it_was).descend(expected, anchor, gradient, half.clone(), size, 0.02 * 0.5, 0.02)
    kernels().descend(floats, anchor, gradient, half, [], numbers, None, rule, size)
    assert torch.equal(floats, expected)


def stack_of(tensors: dict[str, torch.Tensor], counts: list[int], *, fused: bool) -> Stack:
    leaves = {n: t.clone().requires_grad_("running" not in n) for n, t in tensors.items()}
    gradients = {n: torch.full_like(t, float("nan")) for n, t in tensors.items()} if fused else {}
    halves = {"": torch.empty(0)} if fused else {}
    return Stack(leaves, gradients, halves, torch.tensor(counts, dtype=torch.int32, device=DEVICE), True)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    found, expected = found.detach(), expected.detach()
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def real_images(counts: list[int], images: int) -> torch.Tensor:
    return (torch.arange(images) < torch.tensor(counts)[:, None])[:, :, None, None, None].to(DEVICE)


@needs_gpu
@pytest.mark.parametrize(
    ("inputs", "outputs", "side", "stride"), [(64, 64, 3, 1), (64, 128, 3, 2), (128, 256, 1, 2), (3, 64, 3, 1)]
)
@pytest.mark.parametrize("size", [(8, 8), (7, 9)])
def test_the_convolution_kernels(inputs: int, outputs: int, side: int, stride: int, size: tuple[int, int]) -> None:
    counts, module = [5, 1, 3], nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
    real = real_images(counts, 5)
    x = torch.where(real, torch.randn(3, 5, *size, inputs, device=DEVICE), 0.0).bfloat16()
    weight = (torch.randn(3, outputs, side, side, inputs, device=DEVICE) / (side * inputs**0.5)).bfloat16().float()
    plain, fused = (stack_of({"weight": weight}, counts, fused=fused) for fused in (False, True))
    if inputs >= 64:
        fused.halves["weight"] = weight.bfloat16()
    images, exact = x.clone().requires_grad_(), x.float().requires_grad_()
    y, expected = convolution(module, "", images, fused), convolution(module, "", exact, plain)
    pull = torch.where(real, torch.randn_like(expected), 0.0).bfloat16()
    torch.autograd.backward([y, expected], [pull, pull.float()])
    assert images.grad is not None and exact.grad is not None and plain.tensors["weight"].grad is not None
    found = fused.gradients["weight"] if inputs >= 64 else fused.tensors["weight"].grad
    assert found is not None
    assert relative(y, expected) < 5e-3
    assert relative(images.grad, exact.grad) < 5e-3
    assert relative(found, plain.tensors["weight"].grad) < 1e-3


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(nn.BatchNorm2d(128), marks=needs_kernels, id="batch"),
        pytest.param(nn.GroupNorm(8, 128), marks=needs_gpu, id="group"),
    ],
)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_the_norm_kernels(module: nn.Module, residual: bool, relu: bool) -> None:
    counts, shape = [5, 2, 3], (3, 5, 7, 9, 128)
    real = real_images(counts, 5)
    x, rest = (torch.randn(shape, device=DEVICE).add(0.5).bfloat16() for _ in range(2))
    names = ["weight", "bias", "running_mean", "running_var"]
    tensors = {name: torch.rand(3, 128, device=DEVICE) + 0.5 for name in names}
    outcomes = []
    for fused in (True, False):
        stack = stack_of(tensors, counts, fused=fused)
        leaves = [t.clone().to(torch.bfloat16 if fused else torch.float32).requires_grad_() for t in (x, rest)]
        y = norm(module, "", leaves[0], stack, relu=relu, residual=leaves[1] if residual else None)
        torch.manual_seed(0)
        pull = torch.where(real, torch.randn(shape, device=DEVICE), 0.0).bfloat16().to(y.dtype)
        torch.autograd.backward([y], [pull])
        gradients = stack.gradients if fused else {n: cast(torch.Tensor, stack.tensors[n].grad) for n in ("weight", "bias")}
        buffers = [stack.tensors[n].detach() for n in names[2:]]
        outcomes.append([torch.where(real, y, 0.0), leaves[0].grad, gradients["weight"], gradients["bias"], *buffers])
        outcomes[-1] += [leaves[1].grad] if residual else []
    for found, expected in zip(*outcomes, strict=True):
        assert found is not None and expected is not None
        assert relative(found, expected) < 1e-2
