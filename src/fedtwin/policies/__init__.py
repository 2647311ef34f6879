"""Selection rules, one file each, found by name through ``fedtwin.registry``."""

from importlib import import_module

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.policies.base import Knobs, OraclePolicy, Policy, PowerRule, View
from fedtwin.registry import POLICIES, SCHEMES

__all__ = ["Knobs", "OraclePolicy", "Policy", "View", "knobs_of", "load_policy", "power_rule", "scheme_name"]


def load_policy(name: str) -> Policy | OraclePolicy:
    """The policy behind a registered name, or behind ``module:attribute``."""
    module, _, attribute = POLICIES.get(name, name).partition(":")
    try:
        policy = getattr(import_module(module), attribute)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
        raise FedtwinError(f"policy.name = {name!r} cannot be loaded: {reason}.") from None
    if not isinstance(policy, Policy | OraclePolicy):
        raise FedtwinError(f"policy.name = {name!r} is a {type(policy).__name__}, not a fedtwin.policies.Policy.")
    return policy


def power_rule(config: Config) -> PowerRule:
    """The power rule in force: the configured one, or by ``scheme`` the one the paper pairs with the policy."""
    return load_policy(config.policy.name).power if config.policy.power == "scheme" else config.policy.power


def knobs_of(config: Config) -> Knobs:
    """The policy's settings as plain numbers."""
    return Knobs(config.policy.v, config.policy.bonus_scale, config.run.seed, config.objective.min_mean_samples)


def scheme_name(config: Config) -> str:
    """The name the paper gives this combination, or one that says what it is."""
    policy = load_policy(config.policy.name)
    name = next(
        (name for name, scheme in SCHEMES.items() if (scheme.policy, scheme.mode) == (config.policy.name, config.run.mode)),
        config.policy.name if config.run.mode == "async" else f"{config.policy.name} (sync)",
    )
    return name if power_rule(config) == policy.power else f"{name} ({power_rule(config)} power)"
