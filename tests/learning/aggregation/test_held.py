"""A state of any form is held and had back with the same bits; what cannot be held is told where it stands."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from fedtwin.config import load_config
from fedtwin.learning.aggregation import Aggregator, no_state
from fedtwin.learning.aggregation.held import Held, Holder, UnholdableError, in_memory, same_bits
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import make_workload
from fedtwin.learning.executors.cuda import Hub
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.learning.learner import Learner

MODEL = np.arange(3, dtype=np.float32)


class Part(NamedTuple):
    """A part of a state."""

    vector: Any
    uploads: int = 0


def apply(state: Any, model: Any, upload: Any, settings: Any) -> Any:  # noqa: ARG001
    return state, None


def holder() -> Holder:
    return Holder(Aggregator(no_state, apply))


@pytest.mark.parametrize(
    "state",
    [
        (),
        None,
        [1, 2.5, True, None, float("nan"), 2**80],
        {"a": [MODEL], 3: (MODEL, MODEL.astype(np.float64))},
        Part(MODEL, 2),
        [Part(None), Part(np.stack([MODEL, MODEL]), 1)],
        (np.float32(1.5), np.int64(2), np.array(3.0), np.zeros((2, 0)), np.array([True, False])),
        MODEL,
    ],
    ids=repr,
)
def test_a_state_is_had_back_with_the_same_bits(state: Any) -> None:
    held = holder().hold(state, MODEL, in_memory)
    back = holder().restore(held, MODEL)
    assert same_bits(held, holder().hold(back, MODEL, in_memory)) and type(back) is type(state)
    assert repr(back) == repr(state)


def test_tensors_are_had_back_as_tensors() -> None:
    model = torch.arange(3, dtype=torch.float32)
    state: list[Any] = [model, torch.stack([model, model]), torch.tensor(2), torch.ones(2, 2, dtype=torch.float64), MODEL]
    back = holder().restore(holder().hold(state, model, in_memory), model)
    for one, other in zip(state, back, strict=True):
        assert type(one) is type(other) and one.dtype == other.dtype and bool((one == other).all())


def test_one_bit_or_another_form_is_another_state() -> None:
    base = holder().hold([MODEL, 1], MODEL, in_memory)
    others: list[Any] = [[MODEL, 1.0], [MODEL, True], (MODEL, 1), [MODEL, 1, None], [-MODEL, 1], [MODEL.astype(np.float64), 1]]
    assert not any(same_bits(base, holder().hold(other, MODEL, in_memory)) for other in others)
    assert same_bits(base, holder().hold([MODEL.copy(), 1], MODEL, in_memory)) and base.size_bytes == 12


class Elsewhere:
    class Hidden(NamedTuple):
        """Not at the top level of its module."""

        value: int = 0


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([1, {2}], r"state\[1\] is a set, which is no array and no number"),
        ({"a": "word"}, r"state\['a'\] is a str"),
        ({False: 1}, "state has the key False"),
        (Part(np.array(["x"])), r"state\.vector is an array of <U1"),
        (Part(np.array([1j])), r"state\.vector is an array of complex128"),
        (Elsewhere.Hidden(), "state is a Hidden, which is no NamedTuple at the top level of the rule's module"),
        (torch.zeros(2, dtype=torch.bfloat16), r"state is of type torch\.bfloat16, which NumPy does not have"),
    ],
)
def test_what_cannot_be_held_is_told_by_its_place(state: Any, words: str) -> None:
    with pytest.raises(UnholdableError, match=words):
        holder().hold(state, MODEL, in_memory)


def test_a_state_that_contains_itself_is_told() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UnholdableError, match="nested too deeply"):
        holder().hold(endless, MODEL, in_memory)


@pytest.mark.parametrize("form", [["set", []], "text", ["array", 0]])
def test_a_form_that_is_none_is_no_state(form: Any) -> None:
    with pytest.raises(ValueError, match="no part of a state"):
        holder().restore(Held(form, [MODEL]), MODEL)


def learners_as_on_a_gpu(**changes: Any) -> tuple[Learner, Learner]:
    """Two of the same run, the first with an upload; their executors, which train here on the CPU, pad and turn the vectors."""
    settings = {"learning.model": "resnet18", "radio.update_bits": 3.6e8, **changes}
    config, data = load_config(overrides=settings), load_dataset("digits")
    workload = make_workload(config, data.shape, data.outputs)

    def learner() -> Learner:
        return Learner(config, [2] * 3, executor=Hub(make_trainer(workload, "float32", "cpu")).executor())

    live, other = learner(), learner()
    assert live._model.floats.shape != (live.layout.float_size,)
    live.downloaded(0, 1)
    assert live.uploaded(0, 1, 0.1) is not None
    return live, other


@pytest.mark.filterwarnings("ignore:learning.aggregation = 'fedbuff' can step beyond")
def test_what_a_gpu_holds_in_an_order_of_its_own_is_held_in_the_models() -> None:
    """A checkpoint has vectors as the model's."""
    live, other = learners_as_on_a_gpu(**{"learning.aggregation": "fedbuff"})
    held = live.state(1).aggregator
    assert [array.shape for array in held.arrays] == [(live.layout.float_size,)] * 2, "the changes, and the average"
    other._gathered = other._rule.restore(held, other._model.floats, other._moved(other._executor.adopt))
    assert torch.equal(other._gathered.own.changes, live._gathered.own.changes) and other._gathered.own.held == 1
    assert torch.equal(other._gathered.average, live._gathered.average)
    for one in (live, other):
        one.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:learning.aggregation = 'ca2fl' can step beyond")
def test_what_a_gpu_holds_in_eight_bits_is_had_back_too() -> None:
    own = {"learning.aggregation_settings.int8_beyond": 0, "learning.buffer_size": 1}
    live, other = learners_as_on_a_gpu(**{"learning.aggregation": "ca2fl", **own})
    held = live.state(1).aggregator
    other._gathered = other._rule.restore(held, other._model.floats, other._moved(other._executor.adopt))
    one, its = (learner._gathered.own for learner in (live, other))
    assert its.last[0].values.dtype == torch.int8 and one.last[0].scale == its.last[0].scale > 0.0
    assert torch.equal(one.last[0].values, its.last[0].values) and torch.equal(one.total.rounded, its.total.rounded)
    for learner in (live, other):
        learner.close()
