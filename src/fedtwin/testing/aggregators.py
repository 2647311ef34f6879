"""Whether an aggregation rule keeps its word: asked with made-up uploads, before a run is."""

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Aggregator, Mixing, Upload, load_aggregator, mixing_of
from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.aggregation.held import Held, same_bits
from fedtwin.usercode import clear_caches

SIZES, UPLOADS_OF_A_ROUND, DEVICES = (1, 7), 4, 5
ROUNDING = 1e-4


class Track(NamedTuple):
    """Where a rule has come to."""

    state: Any
    model: Any


def check_aggregator(rule: str | Aggregator, settings: Mapping[str, Any] | None = None, *, uploads: int = 40) -> None:
    """Asks a rule with made-up uploads whether it is what a run, a checkpoint and an edge server need.

    That is: nothing is changed in place; the same arguments give the same answer; a new model has the model's shape and type
    and is finite; the state survives a checkpoint with the same bits; the same uploads from the start give the same state
    again; and all that with NumPy's vectors and, where PyTorch is installed, with its own, to the same numbers but for
    rounding.

    :param rule: an ``Aggregator``, its registered name, or ``module:attribute``.
    :param settings: the rule's own settings, where they are not to be its defaults.
    :param uploads: how many of them.
    :raises FedtwinError: the first promise that is not kept, in one sentence.
    """
    found = load_aggregator(rule) if isinstance(rule, str) else rule
    if not isinstance(found, Aggregator):
        raise FedtwinError(f"rule = {rule!r} is a {type(rule).__name__}, not a fedtwin.learning.aggregation.Aggregator.")
    name = rule if isinstance(rule, str) else str(getattr(found.apply, "__module__", "rule"))
    told = mixing_of(LearningConfig(buffer_size=3, aggregation_settings=dict(settings or {})), found)
    for size in SIZES:
        models = [_models(name, found, told, vector, size, uploads) for vector in _kinds()]
        for other in models[1:]:
            if not all(np.allclose(one, its, ROUNDING, ROUNDING) for one, its in zip(models[0], other, strict=True)):
                raise FedtwinError(f"learning.aggregation = {name!r} gives PyTorch's vectors other models than NumPy's.")


def _models(name: str, found: Aggregator, told: Mixing, vector: Any, size: int, uploads: int) -> list[Any]:
    """Every model on the way; the rule is asked on two tracks, one of which is read from a checkpoint at every step."""
    rule = Rule(name, found, told, doubted=True)
    first = vector(np.random.default_rng(size).normal(size=size))
    begun = [Track(rule.init(first), first) for _ in range(3)]
    _require(rule, begun[0], begun[1], "init gives two states for one model")
    live, kept, models = begun[0], begun[1], []
    for upload in _uploads(found, vector, size, uploads):
        live, kept = (_next(rule, track, upload) for track in (live, _from_a_checkpoint(rule, kept)))
        _require(rule, live, kept, "goes on otherwise when its state was read from a checkpoint")
        models.append(np.asarray(live.model))
    clear_caches(found)
    again = begun[2]
    for upload in _uploads(found, vector, size, uploads):
        again = _next(rule, again, upload)
    _require(rule, live, again, "comes to another state or model when the same uploads are applied again")
    return models


def _next(rule: Rule, track: Track, upload: Upload | None) -> Track:
    return Track(*(rule.apply(*track, upload) if upload is not None else rule.close_round(*track)))


def _uploads(found: Aggregator, vector: Any, size: int, count: int) -> Iterator[Upload | None]:
    """Made-up ones, the same every time; None ends a round, for rules that are for synchronous ones."""
    chance = np.random.default_rng(count)
    for number in range(count):
        start, weights = (vector(chance.normal(size=size)) for _ in range(2))
        staleness, samples = int(chance.integers(0, 1 + number)), float(chance.integers(1, 100))
        yield Upload(start if found.needs_start else None, weights, staleness, samples, number % DEVICES, number)
        if "sync" in found.modes and number % UPLOADS_OF_A_ROUND == UPLOADS_OF_A_ROUND - 1:
            yield None


def _from_a_checkpoint(rule: Rule, track: Track) -> Track:
    held = rule.hold(track.state, track.model)
    read = Held(json.loads(json.dumps(held.form)), [np.array(array) for array in held.arrays])
    return Track(rule.restore(read, track.model), track.model)


def _require(rule: Rule, one: Track, other: Track, otherwise: str) -> None:
    held = [rule.hold(tuple(track), track.model) for track in (one, other)]
    if not same_bits(*held):
        raise FedtwinError(f"learning.aggregation = {rule.name!r} {otherwise}: it may look at its arguments only.")


def _kinds() -> Iterator[Any]:
    """What makes a vector: of NumPy, and of PyTorch where it is installed."""
    yield lambda values: values.astype(np.float32)
    if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
        import torch

        yield lambda values: torch.from_numpy(values.astype(np.float32))
