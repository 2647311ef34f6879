# mypy: ignore-errors
# ruff: noqa: N803
"""Convolution and its two gradients: implicit matrix products, one client per grid column."""

import torch
import triton
import triton.language as tl


@triton.jit
def _convolve(
    x, w, y, counts, images, w_stride,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CO: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = x * w: rows are output pixels, columns output channels, summed over taps and input channels."""
    client = tl.program_id(1).to(tl.int64)
    tiles: tl.constexpr = CO // BN
    parts: tl.constexpr = CI // BK
    first = (tl.program_id(0) // tiles) * BM
    valid = tl.load(counts + client) * (OH * OW)
    m = first + tl.arange(0, BM)
    image = m // (OH * OW)
    oh = (m % (OH * OW)) // OW
    ow = m % OW
    co = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x += client * images * (H * W * CI)
    w += client * w_stride
    y += client * images * (OH * OW * CO)
    total = tl.zeros((BM, BN), tl.float32)
    for t in range(tl.where(first < valid, SIDE * SIDE * parts, 0)):
        tap = t // parts
        c = (t % parts) * BK
        ih = oh * STRIDE + tap // SIDE - PAD
        iw = ow * STRIDE + tap % SIDE - PAD
        inside = (m < valid) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        a = tl.load(x + (((image * H + ih) * W + iw) * CI + c)[:, None] + k[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(w + (co * (SIDE * SIDE * CI) + tap * CI + c)[None, :] + k[:, None])
        total = tl.dot(a, b, total)
    tl.store(y + (m * CO)[:, None] + co[None, :], total.to(y.dtype.element_ty), mask=(m < images * (OH * OW))[:, None])


@triton.jit
def _input_gradient(
    dy, w, dx, counts, images, w_stride,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CO: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dx: rows are input pixels of one parity (only some taps reach a pixel when the stride is 2), columns input channels."""
    client = tl.program_id(1).to(tl.int64)
    ph = tl.program_id(2) // STRIDE
    pw = tl.program_id(2) % STRIDE
    height = (H - ph + STRIDE - 1) // STRIDE
    width = (W - pw + STRIDE - 1) // STRIDE
    r0 = (ph + PAD) % STRIDE
    s0 = (pw + PAD) % STRIDE
    taps_h = (SIDE - r0 + STRIDE - 1) // STRIDE
    taps_w = (SIDE - s0 + STRIDE - 1) // STRIDE
    tiles: tl.constexpr = CI // BN
    parts: tl.constexpr = CO // BK
    first = (tl.program_id(0) // tiles) * BM
    valid = tl.load(counts + client) * height * width
    m = first + tl.arange(0, BM)
    image = m // (height * width)
    ih = ((m % (height * width)) // width) * STRIDE + ph
    iw = (m % width) * STRIDE + pw
    ci = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    dy += client * images * (OH * OW * CO)
    w += client * w_stride
    dx += client * images * (H * W * CI)
    total = tl.zeros((BM, BN), tl.float32)
    for t in range(tl.where(first < valid, taps_h * taps_w * parts, 0)):
        tap = t // parts
        c = (t % parts) * BK
        r = r0 + (tap // tl.maximum(taps_w, 1)) * STRIDE
        s = s0 + (tap % tl.maximum(taps_w, 1)) * STRIDE
        up = ih + PAD - r
        left = iw + PAD - s
        oh = up // STRIDE
        ow = left // STRIDE
        inside = (m < valid) & (up >= 0) & (oh < OH) & (left >= 0) & (ow < OW)
        a = tl.load(dy + (((image * OH + oh) * OW + ow) * CO + c)[:, None] + k[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(w + ((c + k) * (SIDE * SIDE * CI) + (r * SIDE + s) * CI)[:, None] + ci[None, :])
        total = tl.dot(a, b, total)
    at = ((image * H + ih) * W + iw) * CI
    tl.store(dx + at[:, None] + ci[None, :], total.to(dx.dtype.element_ty), mask=(m < images * height * width)[:, None])


@triton.jit
def _weight_gradient(
    x, dy, dw, counts, images, dw_stride,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, CO: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dw of one tap: rows are output channels, columns input channels, summed over output pixels."""
    client = tl.program_id(1).to(tl.int64)
    columns: tl.constexpr = CI // BN
    tiles: tl.constexpr = columns * (CO // BM)
    tap = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    co = (tile // columns) * BM + tl.arange(0, BM)
    ci = (tile % columns) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    valid = tl.load(counts + client) * (OH * OW)
    x += client * images * (H * W * CI)
    dy += client * images * (OH * OW * CO)
    total = tl.zeros((BM, BN), tl.float32)
    for t in range(tl.cdiv(valid, BK)):
        m = t * BK + k
        image = m // (OH * OW)
        ih = ((m % (OH * OW)) // OW) * STRIDE + tap // SIDE - PAD
        iw = (m % OW) * STRIDE + tap % SIDE - PAD
        inside = (m < valid) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        a = tl.load(dy + (m * CO)[None, :] + co[:, None], mask=(m < valid)[None, :], other=0.0)
        b = tl.load(x + (((image * H + ih) * W + iw) * CI)[:, None] + ci[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(dw + client * dw_stride + (co * (SIDE * SIDE * CI) + tap * CI)[:, None] + ci[None, :], total)


class Convolution(torch.autograd.Function):
    """A convolution with other weights for every client.

    ``half`` is the bfloat16 copy of ``weight`` and ``gradient`` the place for its gradient; where they are not given, the copy
    is made here and the gradient returned.
    """

    @staticmethod
    def forward(ctx, x, weight, half, gradient, counts, stride, padding):
        half = weight.to(x.dtype) if half is None else half
        clients, images, height, width, inputs = x.shape
        outputs, side = half.shape[1], half.shape[2]
        out_h, out_w = ((size + 2 * padding - side) // stride + 1 for size in (height, width))
        shape = (height, width, inputs, out_h, out_w, outputs, side, stride, padding)
        y = torch.empty(clients, images, out_h, out_w, outputs, dtype=x.dtype, device=x.device)
        tile = _tile(outputs, inputs)
        grid = (triton.cdiv(images * out_h * out_w, tile["BM"]) * (outputs // tile["BN"]), clients)
        _convolve[grid](x, half, y, counts, images, half.stride(0), *shape, **tile)
        ctx.save_for_backward(x, half, counts)
        ctx.shape, ctx.gradient = shape, gradient
        return y

    @staticmethod
    def backward(ctx, dy):
        x, half, counts = ctx.saved_tensors
        dy = dy.contiguous()
        clients, images, height, width, inputs = x.shape
        outputs, side, stride = ctx.shape[5:8]
        dw = torch.empty(half.shape, device=x.device) if ctx.gradient is None else ctx.gradient
        tile = _weight_tile(outputs, inputs)
        grid = (side * side * (outputs // tile["BM"]) * (inputs // tile["BN"]), clients)
        _weight_gradient[grid](x, dy, dw, counts, images, dw.stride(0), *ctx.shape, **tile)
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x)
            tile = _tile(inputs, outputs)
            rows = images * (-(-height // stride)) * (-(-width // stride))
            grid = (triton.cdiv(rows, tile["BM"]) * (inputs // tile["BN"]), clients, stride * stride)
            _input_gradient[grid](dy, half, dx, counts, images, half.stride(0), *ctx.shape, **tile)
        return dx, dw if ctx.gradient is None else None, None, None, None, None, None


def _tile(columns, inner):
    """The tiles that were fastest on the shapes of ResNet-18."""
    wide = columns % 128 == 0
    return {
        "BM": 128,
        "BN": 128 if wide else 64 if columns % 64 == 0 else 16,
        "BK": 64 if inner % 64 == 0 else 16,
        "num_warps": 8 if wide else 4,
        "num_stages": 3,
    }


def _weight_tile(outputs, inputs):
    if outputs % 128 == 0 and inputs % 128 == 0:
        return {"BM": 128, "BN": 128, "BK": 32, "num_warps": 4, "num_stages": 4}
    if outputs % 128 == 0 and inputs % 64 == 0:
        return {"BM": 128, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 4}
    return {"BM": 64, "BN": 64 if inputs % 64 == 0 else 16, "BK": 128, "num_warps": 4, "num_stages": 3}
