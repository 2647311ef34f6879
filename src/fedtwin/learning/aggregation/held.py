"""A rule's state as plain data and arrays, whatever the rule: what a checkpoint writes, and what a state is compared by.

The plain data is JSON; in it an array stands as its number. Vectors like the model's travel between an executor and this
machine's memory as models do, other arrays as they are.
"""

import functools
import inspect
import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.learning.aggregation.base import Aggregator

Move = Callable[[Any], Any]
"""Brings a vector like the model's to this machine's memory, or back."""
LARGEST_ITEM_BYTES = 8


class Held(NamedTuple):
    """A state, held."""

    form: Any
    arrays: list[NDArray[Any]]

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


class UnholdableError(Exception):
    """Why a state cannot be held, in a few words."""


class Holder:
    """Holds the states of one rule; its NamedTuples are found again by their names, in the modules of its functions."""

    def __init__(self, rule: Aggregator) -> None:
        self._classes: dict[str, type] = {}
        for function in (rule.init, rule.apply, rule.close_round):
            for value in list(_names_of(function).values()):
                if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
                    self._classes[value.__name__] = value

    def hold(self, state: Any, model: Any, to_host: Move) -> Held:
        """The state as plain data, or ``UnholdableError``. Nothing is copied that need not be."""
        arrays: list[NDArray[Any]] = []
        try:
            return Held(self._form(state, "state", model, to_host, arrays), arrays)
        except RecursionError:
            raise UnholdableError("it is nested too deeply") from None

    def restore(self, held: Held, model: Any, to_executor: Move | None = None) -> Any:
        """The state again, with the same bits; ``model`` is of the kind that its vectors are to be."""
        match held.form:
            case ["array", int(number), kind]:
                return _brought_back(held.arrays[number], kind, model, to_executor)
            case ["tuple", list(parts)]:
                return tuple(self.restore(Held(part, held.arrays), model, to_executor) for part in parts)
            case ["list", list(parts)]:
                return [self.restore(Held(part, held.arrays), model, to_executor) for part in parts]
            case ["dict", list(parts)]:
                return {key: self.restore(Held(part, held.arrays), model, to_executor) for key, part in parts}
            case ["named", str(name), list(parts)]:
                found: Any = self._classes[name]
                return found(*(self.restore(Held(part, held.arrays), model, to_executor) for part in parts))
            case None | bool() | int() | float():
                return held.form
            case _:
                raise ValueError(f"{held.form!r} is no part of a state")

    def _form(self, value: Any, place: str, model: Any, to_host: Move, arrays: list[NDArray[Any]]) -> Any:
        def inside(parts: Any, names: Any) -> list[Any]:
            return [self._form(part, f"{place}{name}", model, to_host, arrays) for part, name in zip(parts, names, strict=True)]

        kind = type(value)
        if value is None or kind in (bool, int, float):
            return value
        if kind in (tuple, list):
            return [kind.__name__, inside(value, (f"[{number}]" for number in range(len(value))))]
        if kind is dict:
            if bad := [key for key in value if type(key) not in (str, int)]:
                raise UnholdableError(f"{place} has the key {bad[0]!r}, which is no word and no whole number")
            return [
                "dict",
                [list(pair) for pair in zip(value, inside(value.values(), map("[{!r}]".format, value)), strict=True)],
            ]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            if self._classes.get(kind.__name__) is not kind:
                raise UnholdableError(
                    f"{place} is a {kind.__name__}, which is no NamedTuple at the top level of the rule's module"
                )
            return ["named", kind.__name__, inside(value, (f".{name}" for name in kind._fields))]
        array, how = _brought_here(value, place, model, to_host)
        arrays.append(array)
        return ["array", len(arrays) - 1, how]


def same_bits(one: Held, other: Held) -> bool:
    """Whether two states are one and the same."""
    if json.dumps(one.form) != json.dumps(other.form):
        return False
    return all(_same_bits(mine, its) for mine, its in zip(one.arrays, other.arrays, strict=True))


def in_memory(vector: Any) -> Any:
    """A vector of any kind as NumPy's, in the order it has."""
    return vector.detach().cpu().numpy() if is_tensor(vector) else vector


def is_tensor(value: Any) -> bool:
    """Whether it is PyTorch's; where that was never imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one is other:
        return True
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    mine, its = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return bool(np.array_equal(mine, its))


def _brought_here(value: Any, place: str, model: Any, to_host: Move) -> tuple[NDArray[Any], str]:
    tensor, array = is_tensor(value), value
    if not tensor and not isinstance(value, np.ndarray | np.generic):
        raise UnholdableError(f"{place} is a {type(value).__name__}, which is no array and no number")
    how = "scalar" if isinstance(value, np.generic) else "torch" if tensor else "numpy"
    if _is_like(value, model):
        rows = [np.asarray(to_host(row)) for row in value.reshape(-1, *model.shape)]
        array, how = np.stack(rows).reshape(*value.shape[:-1], -1) if len(rows) != 1 or value.ndim != 1 else rows[0], "model"
    elif tensor:
        try:
            array = in_memory(value)
        except TypeError:
            raise UnholdableError(f"{place} is of type {value.dtype}, which NumPy does not have") from None
    array = np.asarray(array)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > LARGEST_ITEM_BYTES or not array.dtype.isnative:
        raise UnholdableError(f"{place} is an array of {array.dtype}, not of numbers of at most 64 bits")
    return array, how


def _brought_back(array: NDArray[Any], how: str, model: Any, to_executor: Move | None) -> Any:
    if how == "scalar":
        return array[()]
    if how == "numpy" or (how == "model" and to_executor is None and not is_tensor(model)):
        return array
    if how == "model" and to_executor is not None:
        rows = [to_executor(row) for row in array.reshape(-1, array.shape[-1])]
        if array.ndim == 1:
            return rows[0]
        stacked = import_module("torch").stack(rows) if is_tensor(model) else np.stack(rows)
        return stacked.reshape(*array.shape[:-1], *model.shape)
    tensor = import_module("torch").from_numpy(np.array(array))
    return tensor.to(model.device) if is_tensor(model) else tensor


def _is_like(value: Any, model: Any) -> bool:
    """A vector like the model's, or several of them in one array."""
    same = is_tensor(value) == is_tensor(model) and not isinstance(value, np.generic)
    return same and value.dtype == model.dtype and tuple(value.shape[-1:]) == tuple(model.shape) and 0 not in value.shape


def _names_of(function: Any) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    names = getattr(inspect.unwrap(function), "__globals__", None) if function is not None else {}
    found: dict[str, Any] = names if names is not None else vars(sys.modules[type(function).__module__])
    return found
