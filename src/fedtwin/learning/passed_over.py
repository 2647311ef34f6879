"""Settings of ``[learning]`` that were set and change nothing in this run: they would be taken for an ablation. NumPy only."""

from collections.abc import Hashable, Sequence
from contextlib import suppress

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.aggregation.at_work import Rule
from fedtwin.learning.aggregation.average import AveragedRule
from fedtwin.learning.aggregation.base import SETTINGS_READ
from fedtwin.registry import is_built_in

DEFAULT = LearningConfig()


def why_unread(config: Config, rule: Rule | AveragedRule, key: str) -> str | None:
    """Whose setting ``learning.<key>`` is, where it is not of what this run does."""
    learning = config.learning or DEFAULT
    if key == "dirichlet_gamma":
        return None if learning.partition == "dirichlet" else f"of partition = 'dirichlet', not of {learning.partition!r}"
    if key == "owned_samples":
        return None if learning.partition != "natural" else "not of partition = 'natural'"
    if key == "average_half_life":
        return None if config.averages else "of average = 'ema'"
    if key not in rule.reads:
        return f"not of aggregation = {rule.name!r}"
    if not is_built_in("aggregators", rule.name):
        return None  # it may use them in a function of its own
    if key == "staleness_exponent" and learning.staleness != "polynomial":
        return f"of staleness = 'polynomial', not of {learning.staleness!r}"
    if key in ("hinge_a", "hinge_b") and learning.staleness != "hinge":
        return f"of staleness = 'hinge', not of {learning.staleness!r}"
    return None


SETTINGS = ("dirichlet_gamma", "owned_samples", "average_half_life", *SETTINGS_READ)


def passed_over(config: Config) -> str | None:
    """One sentence where settings are not the defaults, and without effect."""
    if config.learning is None:
        return None
    rule = aggregation_of(config)
    changed = [key for key in SETTINGS if getattr(config.learning, key) != getattr(DEFAULT, key)]
    found = [
        f"learning.{key} = {_told(config.learning, key)} is {why}" for key in changed if (why := why_unread(config, rule, key))
    ]
    return f"Without effect: {'; '.join(found)}." if found else None


def passed_over_among(configs: Sequence[Config]) -> list[str]:
    """The same for several runs, each sentence once; a rule that cannot be had is the affair of its run."""
    asked: dict[Hashable, Config] = {}
    for config in configs:
        if config.learning is not None:
            relevant = tuple(getattr(config.learning, key) for key in (*SETTINGS, "partition", "average", "aggregation"))
            asked.setdefault((*relevant, config.averages, config.run.mode, config.code.folder), config)
    sentences: dict[str, None] = {}
    for config in asked.values():
        with suppress(FedtwinError):
            sentences.update(dict.fromkeys([sentence] if (sentence := passed_over(config)) else []))
    return list(sentences)


def _told(learning: LearningConfig, key: str) -> str:
    value = getattr(learning, key)
    return repr(value) if isinstance(value, str) else f"{value:g}"
