"""What a scheme is: whatever is compared, swept or drawn becomes a configuration here, and nowhere else."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedtwin.config import Config, beside, build_config, replace_settings
from fedtwin.errors import FedtwinError
from fedtwin.given import wrong_kind
from fedtwin.policies import OraclePolicy, Policy, policy_of
from fedtwin.registry import SCHEMES, find_scheme
from fedtwin.sim.given import configured

Scheme = str | Policy | OraclePolicy
"""A scheme of the paper, a policy's name, ``module:attribute`` of one's own, or a policy as an object."""


def scheme_config(base: Config, scheme: Scheme, folder: Path | None = None) -> Config:
    """The base configuration under another scheme or policy; a power rule the user set stays.

    A scheme of the paper brings its synchrony along. Code of the user's is looked for in ``folder``, then where one works.
    """
    if isinstance(scheme, Policy | OraclePolicy):
        return configured(base, policy=scheme)
    if not isinstance(scheme, str):
        raise FedtwinError(
            f"{scheme!r} is not a scheme: give one of {', '.join(SCHEMES)}, a policy or its name, module:attribute."
        )
    mode = {} if find_scheme(scheme) else {"run.mode": base.run.mode}
    config = replace_settings(base, {**mode, "policy.name": scheme})
    return beside(config, folder, Path.cwd()) if folder is not None else config


def each_with_its_settings(configs: Sequence[Config]) -> list[Config]:
    """Settings that policies declare go to those that declare them; one that none declares stays, and is refused by its run."""
    declared = [set(getattr(policy_of(config).settings, "_fields", ())) for config in configs]
    of_others = [set().union(*declared) - own for own in declared]
    return [_without_settings(config, others) for config, others in zip(configs, of_others, strict=True)]


def _without_settings(config: Config, names: set[str]) -> Config:
    kept = {key: value for key, value in config.policy.settings.items() if key not in names}
    return config.model_copy(update={"policy": config.policy.model_copy(update={"settings": kept})})


def chosen_schemes(schemes: str | Sequence[Scheme] | None, default: Sequence[str]) -> list[Scheme]:
    """A list of schemes, or text with commas between them; by default the others."""
    if schemes is None:
        return list(default)
    if not isinstance(schemes, Iterable):
        raise wrong_kind("schemes", schemes, "a name or a list of schemes")
    names: list[Scheme] = [name.strip() for name in schemes.split(",")] if isinstance(schemes, str) else list(schemes)
    names = [name for name in names if name]
    if not names:
        raise FedtwinError(f"schemes = {schemes!r} names none: choose from {', '.join(SCHEMES)}.")
    return names


def only_names(schemes: Sequence[Scheme], what: str) -> list[str]:
    """Schemes that stand in files and in names of files, and so must be names themselves."""
    for scheme in schemes:
        if not isinstance(scheme, str):
            raise FedtwinError(f"{what} takes schemes by name: put {scheme!r} into a file and name it module:attribute.")
    return [str(scheme) for scheme in schemes]


def label(config: Config, scheme: str) -> str:
    """A scheme's name, with the policy settings that are not the defaults, what the twin knows of links, and the timeout."""
    default = build_config({}, {}).policy
    changed = [
        f"{key}={getattr(config.policy, key)}"
        for key in ("v", "bonus_scale", "feedback")
        if getattr(config.policy, key) != getattr(default, key)
    ]
    changed += [f"{key}={value}" for key, value in config.policy.settings.items()]
    changed += [f"gain={config.twin.gain}"] if config.twin.gain != "last-heard" else []
    changed += [f"timeout={config.run.sync_timeout_s:g} s"] if config.run.sync_timeout_s is not None else []
    return " ".join([scheme, *changed])
