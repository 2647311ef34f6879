# mypy: ignore-errors
# ruff: noqa: N803
"""The kernel of SGD as it was when rate and pull were numbers in the call: what the one of today is held to, bit for bit."""

import triton
import triton.language as tl

ELEMENTS = 2048


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
