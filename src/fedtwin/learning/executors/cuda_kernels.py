# mypy: ignore-errors
# ruff: noqa: N803
"""Triton kernels for many small networks at once: every kernel has the client as one axis of its grid.

One client's convolution on 32 images is too small for a large GPU, and libraries have no fast convolution with other weights
for every client; with the clients side by side the matrix units are busy. Activations are (client, image, height, width,
channel) in bfloat16, sums are float32. ``counts`` holds how many images of each client are real: rows beyond are neither
computed nor summed and come out as zeros, so a ragged last batch is exact.
"""

import torch
import triton
import triton.language as tl

MOST_SPLITS = 32
ELEMENTS = 2048


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


@triton.jit
def _moments(
    x, dy, y, mean, scale, sums, counts, rows_per_image, images,
    C: tl.constexpr, SPLITS: tl.constexpr, BACKWARD: tl.constexpr, RELU: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Per channel Σ x and Σ x² of the real rows; backward: Σ g and Σ g x̂, where g is the gradient behind the ReLU."""
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
    for start in range(split * BR, valid, SPLITS * BR):
        rows = start + tl.arange(0, BR)
        offsets = at + (rows * C)[:, None] + c[None, :]
        real = (rows < valid)[:, None]
        value = tl.load(x + offsets, mask=real, other=0.0).to(tl.float32)
        if BACKWARD:
            gradient = tl.load(dy + offsets, mask=real, other=0.0).to(tl.float32)
            if RELU:
                gradient = tl.where(tl.load(y + offsets, mask=real, other=0.0) > 0, gradient, 0.0)
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
    x, dy, y, dx, dresidual, mean, scale, weight, dbias, dweight, counts, elements_per_image, images, stride, gradient_stride,
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
    if RELU:
        gradient = tl.where(tl.load(y + at, mask=real, other=0.0) > 0, gradient, 0.0)
    spread = tl.load(scale + client * C + c)
    normal = (tl.load(x + at, mask=real, other=0.0).to(tl.float32) - tl.load(mean + client * C + c)) * spread
    common = tl.load(dbias + client * gradient_stride + c) + normal * tl.load(dweight + client * gradient_stride + c)
    value = (gradient - common / n) * spread * tl.load(weight + client * stride + c)
    tl.store(dx + at, tl.where(real, value, 0.0).to(dx.dtype.element_ty), mask=stored)
    if RESIDUAL:
        tl.store(dresidual + at, gradient.to(dresidual.dtype.element_ty), mask=stored)


@triton.jit
def _descend(floats, anchor, gradient, half, pull, rate, size, wide, stride, BLOCK: tl.constexpr):
    """One step of SGD with the proximal term on the float32 weights, and their bfloat16 copy."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    value = tl.load(floats + client * stride + i, mask=inside)
    value += pull * (tl.load(anchor + client * stride + i, mask=inside) - value)
    value -= rate * tl.load(gradient + client * stride + i, mask=inside)
    tl.store(floats + client * stride + i, value, mask=inside)
    tl.store(half + client * wide + i, value.to(half.dtype.element_ty), mask=i < wide)


def descend(floats, anchor, gradient, half, size, pull, rate):
    """The first ``size`` floats of every client, its parameters, go one step downhill, in place."""
    clients = len(floats)
    grid = (triton.cdiv(size, ELEMENTS), clients)
    _descend[grid](floats, anchor, gradient, half, pull, rate, size, half.shape[1], floats.stride(0), BLOCK=ELEMENTS)


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
        return {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
    if outputs % 128 == 0 and inputs % 64 == 0:
        return {"BM": 128, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 4}
    return {"BM": 64, "BN": 64 if inputs % 64 == 0 else 16, "BK": 128, "num_warps": 4, "num_stages": 3}


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
            x,
            x,
            x,
            mean,
            mean,
            sums,
            counts,
            pixels,
            images,
            C=channels,
            SPLITS=splits,
            BACKWARD=False,
            RELU=False,
            BR=64,
            BC=64,
        )
        _finish[(channels // 64, clients)](
            sums, mean[0], mean[1], running_mean, running_var, counts, pixels, running_mean.stride(0), momentum, eps,
            C=channels, SPLITS=splits, BACKWARD=False, BC=64,
        )  # fmt: skip
        y = normalise(x, residual, mean[0], mean[1], weight, bias, counts, relu)
        ctx.save_for_backward(x, y, mean, weight, counts)
        ctx.relu, ctx.residual, ctx.gradients = relu, residual is not None, (dweight, dbias)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y, mean, weight, counts = ctx.saved_tensors
        dweight, dbias = ctx.gradients
        dy = dy.contiguous()
        clients, images, height, width, channels = x.shape
        pixels = height * width
        splits = _splits(images * pixels)
        sums = torch.empty(clients, splits, 2, channels, device=x.device)
        _moments[(channels // 64, splits, clients)](
            x, dy, y, mean[0], mean[1], sums, counts, pixels, images,
            C=channels, SPLITS=splits, BACKWARD=True, RELU=ctx.relu, BR=64, BC=64,
        )  # fmt: skip
        _finish[(channels // 64, clients)](
            sums, dbias, dweight, mean, mean, counts, pixels, dbias.stride(0), 0.0, 0.0,
            C=channels, SPLITS=splits, BACKWARD=True, BC=64,
        )  # fmt: skip
        dx = torch.empty_like(x)
        dresidual = torch.empty_like(x) if ctx.residual else None
        elements = pixels * channels
        _normalise_backward[(triton.cdiv(images * elements, ELEMENTS), clients)](
            x, dy, y, dx, dx if dresidual is None else dresidual, mean[0], mean[1], weight, dbias, dweight, counts,
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
