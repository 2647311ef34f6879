"""Names of the policies and of the paper's schemes. Data only: the code behind a name is imported when it is used."""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["async", "sync"]

POLICIES: dict[str, str] = {
    "cu-ucb": "fedtwin.policies.cu_ucb:POLICY",
    "queue-only": "fedtwin.policies.queue_only:POLICY",
    "fairness": "fedtwin.policies.fairness:POLICY",
    "random": "fedtwin.policies.random_choice:POLICY",
    "genie": "fedtwin.policies.genie:POLICY",
}


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
    return ", ".join([*POLICIES, *SCHEMES]) + ", or module:attribute of a policy of your own"
