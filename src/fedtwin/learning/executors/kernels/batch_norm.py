# mypy: ignore-errors
# ruff: noqa: N803
"""Batch normalisation over the real images of every client, with what follows it (residual, ReLU) in the same pass."""

import torch
import triton
import triton.language as tl

MOST_SPLITS = 32
ELEMENTS = 2048


@triton.jit
def _moments(
    x, dy, y, mean, scale, weight, bias, sums, counts, rows_per_image, images, stride,
    C: tl.constexpr, SPLITS: tl.constexpr, BACKWARD: tl.constexpr, RELU: tl.constexpr, RESIDUAL: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Per channel Σ x and Σ x² of the real rows; backward: Σ g and Σ g x̂, where g is the gradient behind the ReLU.

    Which values the ReLU has let through is worked out again from x, which is read anyway, unless a residual was added.
    """
    client = tl.program_id(2).to(tl.int64)
    split = tl.program_id(1)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    valid = tl.load(counts + client) * rows_per_image
    at = client * images * rows_per_image * C
    first = tl.zeros((BR, BC), tl.float32)
    second = tl.zeros((BR, BC), tl.float32)
    if BACKWARD:
        centre = tl.load(mean + client * C + c)[None, :]
        spread = tl.load(scale + client * C + c)[None, :]
        slope = spread * tl.load(weight + client * stride + c)[None, :]
        shift = tl.load(bias + client * stride + c)[None, :]
    for start in range(split * BR, valid, SPLITS * BR):
        rows = start + tl.arange(0, BR)
        offsets = at + (rows * C)[:, None] + c[None, :]
        real = (rows < valid)[:, None]
        value = tl.load(x + offsets, mask=real, other=0.0).to(tl.float32)
        if BACKWARD:
            gradient = tl.load(dy + offsets, mask=real, other=0.0).to(tl.float32)
            if RELU and RESIDUAL:
                gradient = tl.where(tl.load(y + offsets, mask=real, other=0.0) > 0, gradient, 0.0)
            elif RELU:
                gradient = tl.where((value - centre) * slope + shift > 0, gradient, 0.0)
            first += gradient
            second += gradient * (value - centre) * spread
        else:
            first += value
            second += value * value
    sums += (client * SPLITS + split) * 2 * C
    tl.store(sums + c, tl.sum(first, 0))
    tl.store(sums + C + c, tl.sum(second, 0))


@triton.jit
def _finish(
    sums, out_first, out_second, running_mean, running_var, counts, rows_per_image, stride, momentum, eps,
    C: tl.constexpr, SPLITS: tl.constexpr, BACKWARD: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward: mean and 1/σ, and the running statistics with the unbiased variance. Backward: gradients of shift and scale."""
    client = tl.program_id(1).to(tl.int64)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    splits = tl.arange(0, SPLITS)
    at = sums + (client * SPLITS + splits)[:, None] * (2 * C) + c[None, :]
    first = tl.sum(tl.load(at), 0)
    second = tl.sum(tl.load(at + C), 0)
    if BACKWARD:
        tl.store(out_first + client * stride + c, first)
        tl.store(out_second + client * stride + c, second)
    else:
        n = (tl.load(counts + client) * rows_per_image).to(tl.float32)
        mean = first / n
        var = tl.maximum(second / n - mean * mean, 0.0)
        tl.store(out_first + client * C + c, mean)
        tl.store(out_second + client * C + c, 1.0 / tl.sqrt(var + eps))
        old = tl.load(running_mean + client * stride + c)
        tl.store(running_mean + client * stride + c, old + momentum * (mean - old))
        old = tl.load(running_var + client * stride + c)
        unbiased = var * (n / tl.maximum(n - 1.0, 1.0))
        tl.store(running_var + client * stride + c, old + momentum * (unbiased - old))


@triton.jit
def _normalise(
    x, residual, y, mean, scale, weight, bias, counts, elements_per_image, images, stride,
    C: tl.constexpr, RELU: tl.constexpr, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = relu((x − mean) · scale · weight + bias + residual)."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % C
    real = i < tl.load(counts + client) * elements_per_image
    at = client * images * elements_per_image + i
    slope = tl.load(scale + client * C + c) * tl.load(weight + client * stride + c)
    value = tl.load(x + at, mask=real, other=0.0).to(tl.float32) - tl.load(mean + client * C + c)
    value = value * slope + tl.load(bias + client * stride + c)
    if RESIDUAL:
        value += tl.load(residual + at, mask=real, other=0.0).to(tl.float32)
    if RELU:
        value = tl.where(value <= 0, 0.0, value)  # a NaN stays one
    tl.store(y + at, tl.where(real, value, 0.0).to(y.dtype.element_ty), mask=i < images * elements_per_image)


@triton.jit
def _normalise_backward(
    x, dy, y, dx, dresidual, mean, scale, weight, bias, dbias, dweight, counts, elements_per_image, images, stride,
    gradient_stride,
    C: tl.constexpr, RELU: tl.constexpr, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx = weight · scale · (g − mean g − x̂ · mean g x̂), and g itself for the residual."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % C
    valid = tl.load(counts + client) * elements_per_image
    n = (valid // C).to(tl.float32)
    real = i < valid
    stored = i < images * elements_per_image
    at = client * images * elements_per_image + i
    gradient = tl.load(dy + at, mask=real, other=0.0).to(tl.float32)
    spread = tl.load(scale + client * C + c)
    slope = spread * tl.load(weight + client * stride + c)
    centred = tl.load(x + at, mask=real, other=0.0).to(tl.float32) - tl.load(mean + client * C + c)
    if RELU and RESIDUAL:
        gradient = tl.where(tl.load(y + at, mask=real, other=0.0) > 0, gradient, 0.0)
    elif RELU:
        gradient = tl.where(centred * slope + tl.load(bias + client * stride + c) > 0, gradient, 0.0)
    normal = centred * spread
    common = tl.load(dbias + client * gradient_stride + c) + normal * tl.load(dweight + client * gradient_stride + c)
    value = (gradient - common / n) * slope
    tl.store(dx + at, tl.where(real, value, 0.0).to(dx.dtype.element_ty), mask=stored)
    if RESIDUAL:
        tl.store(dresidual + at, gradient.to(dresidual.dtype.element_ty), mask=stored)


class BatchNorm(torch.autograd.Function):
    """Training-mode BatchNorm of the real images, with the residual and the ReLU behind it in the same pass."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, dweight, dbias, running_mean, running_var, counts, eps, momentum, relu):
        clients, images, height, width, channels = x.shape
        pixels = height * width
        mean = torch.empty(2, clients, channels, device=x.device)
        splits = _splits(images * pixels)
        sums = torch.empty(clients, splits, 2, channels, device=x.device)
        _moments[(channels // 64, splits, clients)](
            x, x, x, mean, mean, weight, bias, sums, counts, pixels, images, weight.stride(0),
            C=channels, SPLITS=splits, BACKWARD=False, RELU=False, RESIDUAL=False, BR=64, BC=64,
        )  # fmt: skip
        _finish[(channels // 64, clients)](
            sums, mean[0], mean[1], running_mean, running_var, counts, pixels, running_mean.stride(0), momentum, eps,
            C=channels, SPLITS=splits, BACKWARD=False, BC=64,
        )  # fmt: skip
        y = normalise(x, residual, mean[0], mean[1], weight, bias, counts, relu)
        ctx.save_for_backward(x, y if relu and residual is not None else x, mean, weight, bias, counts)
        ctx.relu, ctx.residual, ctx.gradients = relu, residual is not None, (dweight, dbias)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y, mean, weight, bias, counts = ctx.saved_tensors
        dweight, dbias = ctx.gradients
        dy = dy.contiguous()
        clients, images, height, width, channels = x.shape
        pixels = height * width
        splits = _splits(images * pixels)
        sums = torch.empty(clients, splits, 2, channels, device=x.device)
        _moments[(channels // 64, splits, clients)](
            x, dy, y, mean[0], mean[1], weight, bias, sums, counts, pixels, images, weight.stride(0),
            C=channels, SPLITS=splits, BACKWARD=True, RELU=ctx.relu, RESIDUAL=ctx.residual, BR=64, BC=64,
        )  # fmt: skip
        _finish[(channels // 64, clients)](
            sums, dbias, dweight, mean, mean, counts, pixels, dbias.stride(0), 0.0, 0.0,
            C=channels, SPLITS=splits, BACKWARD=True, BC=64,
        )  # fmt: skip
        dx = torch.empty_like(x)
        dresidual = torch.empty_like(x) if ctx.residual else None
        elements = pixels * channels
        _normalise_backward[(triton.cdiv(images * elements, ELEMENTS), clients)](
            x, dy, y, dx, dx if dresidual is None else dresidual, mean[0], mean[1], weight, bias, dbias, dweight, counts,
            elements, images, weight.stride(0), dbias.stride(0),
            C=channels, RELU=ctx.relu, RESIDUAL=ctx.residual, BLOCK=ELEMENTS,
        )  # fmt: skip
        return dx, dresidual, *(None,) * 10


def normalise(x, residual, mean, scale, weight, bias, counts, relu):
    """The normalising pass alone: what BatchNorm does when its statistics are given."""
    clients, images, height, width, channels = x.shape
    elements = height * width * channels
    y = torch.empty_like(x)
    _normalise[(triton.cdiv(images * elements, ELEMENTS), clients)](
        x, x if residual is None else residual, y, mean, scale, weight, bias, counts, elements, images, weight.stride(0),
        C=channels, RELU=relu, RESIDUAL=residual is not None, BLOCK=ELEMENTS,
    )  # fmt: skip
    return y


def _splits(rows):
    return min(MOST_SPLITS, triton.next_power_of_2(max(1, rows // 1024)))
