"""Selection rules, one file each, found by name through ``fedtwin.registry``."""

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.parts import settings_of
from fedtwin.policies.base import Knobs, News, OraclePolicy, Policy, PowerRule, Prediction, View
from fedtwin.registry import SCHEMES, target_of
from fedtwin.usercode import load_object

__all__ = [
    "Knobs",
    "News",
    "OraclePolicy",
    "Policy",
    "Prediction",
    "View",
    "knobs_of",
    "load_policy",
    "plain_knobs_of",
    "policy_of",
    "power_rule",
    "scheme_name",
]


def load_policy(name: str, folder: str | None = None) -> Policy | OraclePolicy:
    """The policy behind a registered or installed name, or ``module:attribute``, which is looked for in ``folder`` first."""
    target = target_of("policies", name) or name
    policy = load_object("policy.name", target, folder if target == name else None)
    if not isinstance(policy, Policy | OraclePolicy):
        raise FedtwinError(f"policy.name = {name!r} is a {type(policy).__name__}, not a fedtwin.policies.Policy.")
    return policy


def policy_of(config: Config) -> Policy | OraclePolicy:
    """The policy that a configuration names."""
    return load_policy(config.policy.name, config.code.folder)


def power_rule(config: Config) -> PowerRule:
    """The power rule in force: the configured one, or by ``scheme`` the one the paper pairs with the policy."""
    return policy_of(config).power if config.policy.power == "scheme" else config.policy.power


def knobs_of(config: Config) -> Knobs:
    """The policy's settings as plain numbers, and those it declares for itself."""
    return plain_knobs_of(config)._replace(
        settings=settings_of("policy.settings", policy_of(config).settings, config.policy.settings)
    )


def plain_knobs_of(config: Config) -> Knobs:
    """Without the settings of its own: no code of the user's is loaded for them."""
    return Knobs(config.policy.v, config.policy.bonus_scale, config.run.seed, config.objective.min_mean_samples)


def scheme_name(config: Config) -> str:
    """The name the paper gives this combination, or one that says what it is."""
    policy = policy_of(config)
    name = next(
        (name for name, scheme in SCHEMES.items() if (scheme.policy, scheme.mode) == (config.policy.name, config.run.mode)),
        config.policy.name if config.run.mode == "async" else f"{config.policy.name} (sync)",
    )
    return name if power_rule(config) == policy.power else f"{name} ({power_rule(config)} power)"
