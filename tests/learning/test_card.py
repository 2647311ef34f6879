"""What a model file says of itself: there and back, in bytes that every reader of safetensors takes."""

import json

import numpy as np
import pytest
from safetensors.numpy import load

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.card import Fit, card_of, read_card, with_card, without_card
from fedtwin.learning.layout import Weights, layout_of
from fedtwin.live.wire.tensors import Codec, metadata_of, read_model

CODEC = Codec(layout_of({"weight": ((2, 3), False), "steps": ((), True)}))
MODEL = CODEC.encode(Weights(np.arange(6, dtype=np.float32), np.array([7])))
FIT = Fit((2, 32), 4, "windows", {"mean": [0.1, -2.0], "std": [1.0, 3.0]})
CARD = card_of(load_config(overrides={"learning.model": "tcn"}), FIT, "0123456789abcdef", None)


def test_a_model_says_what_it_is_and_its_tensors_stay() -> None:
    card = CARD.of("best", round=3, test_loss=0.5, test_metric=0.75)
    data = with_card(MODEL, card)
    assert read_card(metadata_of(data), "x") == card
    assert (card.task, card.loss, card.metric, card.model, card.outputs) == (
        *("classification", "cross-entropy", "accuracy", "tcn", 4),
    )
    assert load(data)["weight"].tolist() == load(MODEL)["weight"].tolist()
    assert CODEC.decode(data).counters.tolist() == read_model(data, "x")[1].counters.tolist() == [7]
    assert without_card(data) == without_card(MODEL) == MODEL and without_card(b"none") == b"none"


def test_a_figure_that_is_no_number_is_left_out() -> None:
    assert CARD.of("served", test_metric=float("nan"), test_loss=1.0).test_metric is None


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({}, "does not say what it is"),
        ({"fedtwin": "["}, "cannot be read"),
        ({"fedtwin": json.dumps({"format": 2})}, "format 2, and this fedtwin reads 1"),
        ({"fedtwin": json.dumps({"format": 1, "shape": None})}, "cannot be read: TypeError"),
    ],
)
def test_anything_else_is_one_sentence(metadata: dict[str, str], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        read_card(metadata, "x.safetensors")
