"""Names of all that can be exchanged. Data only: the code behind a name is imported when it is used.

A package can add names of its own: an entry point of the group ``fedtwin.<kind>``, such as ``fedtwin.policies``.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Literal

from fedtwin.errors import FedtwinWarning

Mode = Literal["async", "sync"]
Kind = Literal["policies", "channels", "loads", "availabilities", "sensings", "aggregators", "losses", "metrics", "optimisers"]

POLICIES: dict[str, str] = {
    "cu-ucb": "fedtwin.policies.cu_ucb:POLICY",
    "queue-only": "fedtwin.policies.queue_only:POLICY",
    "fairness": "fedtwin.policies.fairness:POLICY",
    "random": "fedtwin.policies.random_choice:POLICY",
    "genie": "fedtwin.policies.genie:POLICY",
    "twin-dpp": "fedtwin.policies.twin_dpp:POLICY",
}
CHANNELS: dict[str, str] = {
    "rayleigh": "fedtwin.world.rayleigh:CHANNEL",
    "jakes": "fedtwin.world.jakes:CHANNEL",
}
LOADS: dict[str, str] = {
    "normal": "fedtwin.world.normal_load:LOAD",
}
AVAILABILITIES: dict[str, str] = {
    "always": "fedtwin.world.always:AVAILABILITY",
}
SENSINGS: dict[str, str] = {
    "uniform": "fedtwin.world.uniform_sensing:SENSING",
}
AGGREGATORS: dict[str, str] = {
    "fedasync": "fedtwin.learning.aggregation.fedasync:RULE",
    "fedavg": "fedtwin.learning.aggregation.fedavg:RULE",
    "fedbuff": "fedtwin.learning.aggregation.fedbuff:RULE",
    "window": "fedtwin.learning.aggregation.window:RULE",
    "change": "fedtwin.learning.aggregation.change:RULE",
    "fedavgm": "fedtwin.learning.aggregation.fedavgm:RULE",
    "ca2fl": "fedtwin.learning.aggregation.ca2fl:RULE",
    "fadas": "fedtwin.learning.aggregation.fadas:RULE",
}
LOSSES: dict[str, str] = {
    "cross-entropy": "fedtwin.learning.objectives.losses:cross_entropy",
    "mse": "fedtwin.learning.objectives.losses:mse",
    "mae": "fedtwin.learning.objectives.losses:mae",
    "huber": "fedtwin.learning.objectives.losses:huber",
    "bce": "fedtwin.learning.objectives.losses:bce",
}
METRICS: dict[str, str] = {
    "accuracy": "fedtwin.learning.objectives.metrics:accuracy",
    "f1": "fedtwin.learning.objectives.metrics:f1",
    "exact-match": "fedtwin.learning.objectives.metrics:exact_match",
    "rmse": "fedtwin.learning.objectives.metrics:rmse",
    "mae": "fedtwin.learning.objectives.metrics:mae",
    "r2": "fedtwin.learning.objectives.metrics:r2",
}
OPTIMISERS: dict[str, str] = {
    "sgd": "fedtwin.learning.objectives.optimisers:sgd",
    "momentum": "fedtwin.learning.objectives.optimisers:momentum",
    "adam": "fedtwin.learning.objectives.optimisers:adam",
}

BUILT_IN: dict[Kind, dict[str, str]] = {
    "policies": POLICIES,
    "channels": CHANNELS,
    "loads": LOADS,
    "availabilities": AVAILABILITIES,
    "sensings": SENSINGS,
    "aggregators": AGGREGATORS,
    "losses": LOSSES,
    "metrics": METRICS,
    "optimisers": OPTIMISERS,
}


@dataclass(frozen=True)
class TaskNames:
    """Fedtwin's own losses and metrics for a task; the first of each is what ``auto`` means."""

    losses: tuple[str, ...]
    metrics: tuple[str, ...]


TASKS: dict[str, TaskNames] = {
    "classification": TaskNames(("cross-entropy",), ("accuracy", "f1")),
    "regression": TaskNames(("mse", "mae", "huber"), ("rmse", "mae", "r2")),
    "multilabel": TaskNames(("bce",), ("f1", "exact-match")),
}
LOWER_IS_BETTER = ("rmse", "mae")


def is_built_in(kind: Kind, name: str) -> bool:
    return name in BUILT_IN[kind]


def target_of(kind: Kind, name: str) -> str | None:
    """``module:attribute`` behind a name: fedtwin's own, one that an installed package has, or itself. None: nobody has it."""
    return BUILT_IN[kind].get(name) or (name if ":" in name else installed(kind).get(name))


@cache
def installed(kind: Kind) -> dict[str, str]:
    """The names that installed packages bring; fedtwin's own names stay its own, which is said."""
    points = entry_points(group=f"fedtwin.{kind}")
    for point in points:
        if point.name in BUILT_IN[kind]:
            sentence = f"{point.name!r} of fedtwin.{kind} is fedtwin's own: {point.value!r} is not used by that name."
            warnings.warn(sentence, FedtwinWarning, stacklevel=2)
    return {point.name: point.value for point in points if point.name not in BUILT_IN[kind]}


def names_of(kind: Kind) -> str:
    """Every name that can be given, for an error message."""
    return ", ".join([*BUILT_IN[kind], *installed(kind)]) + ", or module:attribute of your own"


@dataclass(frozen=True)
class Scheme:
    """A selection rule with the synchrony the paper runs it in; its power rule is the policy's own."""

    policy: str
    mode: Mode


SCHEMES: dict[str, Scheme] = {
    "CU-UCB": Scheme("cu-ucb", "async"),
    "As-Q-only": Scheme("queue-only", "async"),
    "As-fairness": Scheme("fairness", "async"),
    "Sy-fairness": Scheme("fairness", "sync"),
    "Random": Scheme("random", "async"),
}


def find_scheme(name: str) -> Scheme | None:
    """The scheme the paper calls ``name``, whatever the case; None for a policy name such as ``random``."""
    if name in POLICIES:
        return None
    return next((scheme for known, scheme in SCHEMES.items() if known.lower() == name.lower()), None)


def known_names() -> str:
    """Every name ``policy.name`` takes, for an error message."""
    return ", ".join([*POLICIES, *installed("policies"), *SCHEMES]) + ", or module:attribute of a policy of your own"
