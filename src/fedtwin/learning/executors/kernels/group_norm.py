# mypy: ignore-errors
# ruff: noqa: N803
"""Group normalisation, with what follows it (residual, ReLU) in the same pass."""

import torch
import triton
import triton.language as tl


@triton.jit
def _group_norm(
    x, dy, residual, y, dx, dresidual, sums, weight, bias, counts, images, stride, eps,
    PIXELS: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BACKWARD: tl.constexpr, RELU: tl.constexpr, RESIDUAL: tl.constexpr,
):  # fmt: skip
    """One group of channels of one image, held in registers: y, or dx with this image's part of the parameters' gradients."""
    client = tl.program_id(2).to(tl.int64)
    image = tl.program_id(1)
    c = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    rows = tl.arange(0, ROWS)
    inside = (rows < PIXELS)[:, None]
    real = inside & (image < tl.load(counts + client))
    at = (client * images + image) * (PIXELS * C) + (rows * C)[:, None] + c[None, :]
    size: tl.constexpr = PIXELS * WIDTH
    value = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    value = tl.where(inside, value - tl.sum(tl.sum(value, 0), 0) / size, 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(tl.sum(value * value, 0), 0) / size + eps)
    normal = value * spread
    slope = tl.load(weight + client * stride + c)[None, :]
    if BACKWARD:
        gradient = tl.load(dy + at, mask=real, other=0.0).to(tl.float32)
        if RELU:
            gradient = tl.where(tl.load(y + at, mask=real, other=0.0) > 0, gradient, 0.0)
        if RESIDUAL:
            tl.store(dresidual + at, gradient.to(dresidual.dtype.element_ty), mask=inside)
        sums += (client * images + image) * (2 * C)
        tl.store(sums + c, tl.sum(gradient, 0))
        tl.store(sums + C + c, tl.sum(gradient * normal, 0))
        scaled = gradient * slope
        common = tl.sum(tl.sum(scaled, 0), 0) / size + normal * (tl.sum(tl.sum(scaled * normal, 0), 0) / size)
        tl.store(dx + at, tl.where(real, (scaled - common) * spread, 0.0).to(dx.dtype.element_ty), mask=inside)
    else:
        out = normal * slope + tl.load(bias + client * stride + c)[None, :]
        if RESIDUAL:
            out += tl.load(residual + at, mask=real, other=0.0).to(tl.float32)
        if RELU:
            out = tl.where(out <= 0, 0.0, out)
        tl.store(y + at, tl.where(real, out, 0.0).to(y.dtype.element_ty), mask=inside)


class GroupNorm(torch.autograd.Function):
    """GroupNorm with other scales and shifts for every client, with the residual and the ReLU behind it in the same pass."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, dweight, dbias, counts, groups, eps, relu):
        y = torch.empty_like(x)
        ctx.save_for_backward(x, y, weight, counts)
        ctx.relu, ctx.residual, ctx.groups, ctx.eps = relu, residual is not None, groups, eps
        ctx.gradients = dweight, dbias  # not saved as tensors are: the neighbours in the same vector may change before
        _run_group_norm(ctx, x, x, x if residual is None else residual, y, y, y, y, weight, bias, counts, backward=False)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y, weight, counts = ctx.saved_tensors
        dweight, dbias = ctx.gradients
        dx = torch.empty_like(x)
        dresidual = torch.empty_like(x) if ctx.residual else None
        sums = torch.empty(*x.shape[:2], 2, x.shape[-1], device=x.device)
        second = dx if dresidual is None else dresidual
        _run_group_norm(ctx, x, dy.contiguous(), x, y, dx, second, sums, weight, weight, counts, backward=True)
        total = sums.sum(1)
        dbias.copy_(total[:, 0])
        dweight.copy_(total[:, 1])
        return dx, dresidual, *(None,) * 8


def _run_group_norm(ctx, x, dy, residual, y, dx, dresidual, sums, weight, bias, counts, *, backward):
    clients, images, height, width, channels = x.shape
    rows = triton.next_power_of_2(height * width)
    each = channels // ctx.groups
    _group_norm[(ctx.groups, images, clients)](
        x, dy, residual, y, dx, dresidual, sums, weight, bias, counts, images, weight.stride(0), ctx.eps,
        PIXELS=height * width, C=channels, WIDTH=each, ROWS=rows, BACKWARD=backward, RELU=ctx.relu, RESIDUAL=ctx.residual,
        num_warps=8 if rows * each > 4096 else 4,
    )  # fmt: skip
