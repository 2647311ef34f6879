"""Tensors of a network that lie in each other's memory: bound to the flat vectors they would silently become two."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from fedtwin.learning.binding import state_tensors


def shared_state(model: nn.Module) -> str | None:
    """Which two parameters or buffers share memory without being one tensor."""
    lying: dict[int, list[tuple[str, Tensor]]] = {}
    for name, tensor in state_tensors(model).items():
        lying.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor))
    for group in lying.values():
        for (name, one), (other_name, other) in combinations(group, 2):
            if _overlap(one, other):
                return f"{name} and {other_name} share memory and are two tensors: tie by assigning one to the other, or clone"
    return None


def shared_attributes(model: nn.Module) -> dict[str, tuple[Tensor, str]]:
    """Plain attributes (also in lists, tuples and dictionaries) in the memory of a parameter or buffer, and of which."""
    state = state_tensors(model)
    own = {id(tensor) for tensor in state.values()}
    return {
        name: (tensor, of)
        for name, tensor in _plain_tensors(model)
        for of, other in state.items()
        if id(tensor) not in own and _overlap(tensor, other)
    }


def _plain_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                for place, tensor in _within(value):
                    yield (f"{prefix}.{name}{place}" if prefix else f"{name}{place}"), tensor


def _within(value: Any) -> list[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        return [("", value)]
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [(f"[{key!r}]", part) for key, part in parts if isinstance(part, Tensor)]


def _overlap(one: Tensor, other: Tensor) -> bool:
    if any(t.layout != torch.strided or t.device.type != "cpu" or not t.numel() for t in (one, other)):
        return False
    memory = one.untyped_storage()
    if memory.data_ptr() != other.untyped_storage().data_ptr():
        return False
    if one.dtype != other.dtype:
        return True
    touched = torch.zeros(memory.nbytes() // one.element_size(), dtype=torch.bool)
    touched.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(touched.as_strided(other.shape, other.stride(), other.storage_offset()).any())
