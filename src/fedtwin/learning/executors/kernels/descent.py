# mypy: ignore-errors
# ruff: noqa: N803
"""The start of all clients at once, and one step of every optimiser of ``cuda_descent``, each with numbers of its own."""

import torch
import triton
import triton.language as tl

ELEMENTS = 2048
FORMS = ("plain", "decayed", "momentum", "adam")


@triton.jit
def _load(starts, floats, anchor, half, size, wide, stride, BLOCK: tl.constexpr):
    """Every client's weights, the model it starts from and the bfloat16 copy, from the address of that model."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    start = tl.multiple_of(tl.load(starts + client).to(tl.pointer_type(tl.float32)), 16)
    value = tl.load(start + i, mask=inside)
    tl.store(floats + client * stride + i, value, mask=inside)
    tl.store(anchor + client * stride + i, value, mask=inside)
    tl.store(half + client * wide + i, value.to(half.dtype.element_ty), mask=i < wide)


@triton.jit
def _descend(floats, anchor, gradient, half, first, second, numbers, factors, decay, beta1, rest1, beta2, rest2, least, size,
             wide, stride, FORM: tl.constexpr, CLIPPED: tl.constexpr, NUMBERS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The float32 weights, their bfloat16 copy, and what the optimiser keeps. Step size, pull and root are read per client."""
    client = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    step = tl.load(numbers + client * NUMBERS)
    pull = tl.load(numbers + client * NUMBERS + 1)
    value = tl.load(floats + client * stride + i, mask=inside)
    start = tl.load(anchor + client * stride + i, mask=inside)
    slope = tl.load(gradient + client * stride + i, mask=inside)
    if CLIPPED:
        slope *= tl.load(factors + client)
    if FORM == 0:
        value += pull * (start - value)
    else:
        slope += pull * (value - start)
        slope += decay * value
    if FORM == 2:
        slope += beta1 * tl.load(first + client * stride + i, mask=inside)
        tl.store(first + client * stride + i, slope, mask=inside)
    if FORM == 3:
        root = tl.load(numbers + client * NUMBERS + 2)
        mean = tl.load(first + client * stride + i, mask=inside)
        mean += rest1 * (slope - mean)
        square = beta2 * tl.load(second + client * stride + i, mask=inside) + rest2 * slope * slope
        tl.store(first + client * stride + i, mean, mask=inside)
        tl.store(second + client * stride + i, square, mask=inside)
        slope = mean / (tl.sqrt(square) / root + least)
    value -= step * slope
    tl.store(floats + client * stride + i, value, mask=inside)
    tl.store(half + client * wide + i, value.to(half.dtype.element_ty), mask=i < wide)


def load(starts, floats, anchor, half):
    """The first clients are given these models; they must stay until the GPU has come so far, as its own memory does."""
    addresses = torch.tensor([start.data_ptr() for start in starts], dtype=torch.int64)
    if floats.is_cuda:
        addresses = addresses.pin_memory().to(floats.device, non_blocking=True)
    grid = (triton.cdiv(floats.shape[1], ELEMENTS), len(starts))
    _load[grid](addresses, floats, anchor, half, floats.shape[1], half.shape[1], floats.stride(0), BLOCK=ELEMENTS)


def descend(floats, anchor, gradient, half, state, numbers, factors, rule, size):
    """The first ``size`` floats of every client, its parameters, go one step downhill, in place.

    ``numbers`` (client, 3) and ``factors`` (client, 1), or None, lie on the GPU: a recorded step reads them when it is played.
    """
    first, second = (*state, floats, floats)[:2]
    grid = (triton.cdiv(size, ELEMENTS), len(floats))
    _descend[grid](
        *(floats, anchor, gradient, half, first, second, numbers, numbers if factors is None else factors),
        *(rule.decay, rule.beta1, 1.0 - rule.beta1, rule.beta2, 1.0 - rule.beta2, rule.least),
        *(size, half.shape[1], floats.stride(0)),
        FORM=FORMS.index(rule.form),
        CLIPPED=factors is not None,
        NUMBERS=numbers.shape[1],
        BLOCK=ELEMENTS,
    )
