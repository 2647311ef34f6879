"""What a policy with a state of its own has kept of every device, by the rows of a simulation."""

from typing import Any

import numpy as np

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.policies import News, knobs_of, policy_of
from fedtwin.policies.checks import next_state
from fedtwin.whatif.fork import Fork


def states_of(fork: Fork) -> tuple[Any, ...] | None:
    """As if it had been the policy from the beginning. None where it keeps nothing."""
    config = fork.config
    policy, knobs = policy_of(config), knobs_of(config)
    if policy.state is None:
        return None
    if fork.live or fork.sync or config.policy.feedback != "on-selection" or config.learning is not None:
        raise FedtwinError(
            f"policy.name = {config.policy.name!r} keeps a state of its own: it can be asked about in asynchronous simulations "
            "without training, with policy.feedback = 'on-selection'."
        )
    states: list[Any] = [policy.state() for _ in fork.twin.devices]
    for device, news in _heard_by_policies(fork):
        states[device] = next_state(config.policy.name, policy, states[device], news, knobs, device)
    return tuple(states)


def _heard_by_policies(fork: Fork) -> list[tuple[int, News]]:
    rows, found = fork.rows, []
    for k in np.flatnonzero(rows.round > 0).tolist():
        device, round_ = int(rows.device[k]), int(rows.round[k])
        if rows.declined[k]:
            news = News(round_, np.nan, np.nan, np.nan, np.nan, True)
        else:
            news = News(round_, float(rows.cost[k]), float(rows.time_s[k]), float(rows.energy_j[k]), np.nan, False)
        found.append((device, news))
    return found


def require_trust(config: Config, settings: tuple[str, ...], *, trust: bool) -> None:
    """Code of the user's runs only where that is said."""
    for setting in settings:
        if not trust and setting in config.own_code:
            name = config.own_code[setting]
            raise FedtwinError(f"{setting} = {name!r} is code of your own, which would be run: say trust=True (--trust).")
