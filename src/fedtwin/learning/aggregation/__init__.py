"""Aggregation: how uploads become the next model. One file per rule, found by name through ``fedtwin.registry``. NumPy only."""

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.aggregation.average import AveragedRule
from fedtwin.learning.aggregation.base import Aggregator, Mixing, Upload, no_state
from fedtwin.learning.aggregation.staleness import staleness_weight
from fedtwin.parts import settings_of
from fedtwin.registry import is_built_in, names_of, target_of
from fedtwin.usercode import load_object

__all__ = ["Aggregator", "Mixing", "Upload", "aggregation_of", "load_aggregator", "mixing_of", "no_state", "staleness_weight"]
SETTING = "learning.aggregation"


def load_aggregator(name: str, folder: str | None = None) -> Aggregator:
    """The rule behind a registered name, or behind ``module:attribute``, which is looked for in ``folder`` first."""
    target = target_of("aggregators", name)
    if target is None:
        raise FedtwinError(f"{SETTING} = {name!r} is unknown: choose one of scheme, {names_of('aggregators')}.")
    rule = load_object(SETTING, target, None if is_built_in("aggregators", name) else folder)
    if not isinstance(rule, Aggregator):
        raise FedtwinError(f"{SETTING} = {name!r} is a {type(rule).__name__}, not a fedtwin.learning.aggregation.Aggregator.")
    return rule


def mixing_of(learning: LearningConfig, rule: Aggregator) -> Mixing:
    """The rule's settings: those of ``[learning]``, and its own."""
    own = settings_of(f"{SETTING}_settings", rule.settings, learning.aggregation_settings)
    return Mixing(
        learning.mixing,
        learning.staleness,
        learning.staleness_exponent,
        learning.hinge_a,
        learning.hinge_b,
        learning.buffer_size,
        own,
    )


def aggregation_of(config: Config) -> Rule | AveragedRule:
    """The configured rule, ready to work; ``scheme``: FedAvg for synchronous rounds, FedAsync otherwise.

    Without ``[learning]`` nothing is known of the model but its tensors: it is served as it is.
    """
    learning, mode = config.learning or LearningConfig(), config.run.mode
    name = learning.aggregation
    if name == "scheme":
        name = "fedavg" if mode == "sync" else "fedasync"
    rule = load_aggregator(name, config.code.folder)
    if mode not in rule.modes:
        allowed = " or ".join(map(repr, rule.modes))
        raise FedtwinError(f"{SETTING} = {name!r} needs run.mode = {allowed}: it is not for {mode!r}.")
    at_work = Rule(name, rule, mixing_of(learning, rule), trusted=is_built_in("aggregators", name))
    return AveragedRule(at_work, learning.average_half_life) if config.averages else at_work
