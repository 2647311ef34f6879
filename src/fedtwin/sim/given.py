"""What is given to ``simulate`` from Python: settings in whatever form is at hand, and a policy or a network as an object."""

from typing import Any

from fedtwin.config import CodeConfig, Config, ConfigLike, config_of, replace_settings
from fedtwin.config.schema import KIND_OF_PART
from fedtwin.errors import FedtwinError
from fedtwin.policies import OraclePolicy, Policy
from fedtwin.registry import BUILT_IN
from fedtwin.usercode import load_object, name_of_object


def configured(config: ConfigLike = None, policy: Any = None, model: Any = None, aggregation: Any = None) -> Config:
    """The configuration of a run, with policy, network and aggregation rule laid over it; each of them a name or an object.

    An object is named as ``module:attribute`` where it can be found under that; otherwise by a name that holds in this process
    only. A network is a function or class that makes one, called with the shape of an image and the number of classes.
    """
    names = {
        **({"policy.name": policy} if isinstance(policy, str) else {}),
        **({"learning.model": model} if isinstance(model, str) else {}),
        **({"learning.aggregation": aggregation} if isinstance(aggregation, str) else {}),
    }
    found = config_of(config, names)
    if policy is not None and not isinstance(policy, str):
        found = with_object(found, "policy.name", _checked_policy(policy))
    if model is not None and not isinstance(model, str):
        found = with_object(found, "learning.model", _checked_model(model))
    if aggregation is not None and not isinstance(aggregation, str):
        found = with_object(found, "learning.aggregation", _checked_rule(aggregation))
    return found


def with_object(config: Config, setting: str, value: Any) -> Config:
    """The configuration in which a setting such as ``policy.name`` names this object."""
    name = _registered_name(setting, value)
    if name is not None:
        return replace_settings(config, {setting: name})
    name, folder = name_of_object(setting, value, config.code.folder)
    changed = replace_settings(config, {setting: name})
    return changed.model_copy(
        update={"code": CodeConfig(folder=folder, model_source=config.code.model_source, sources=config.code.sources)}
    )


def _registered_name(setting: str, value: Any) -> str | None:
    """Of a part that is fedtwin's own."""
    kind = "aggregators" if setting == "learning.aggregation" else KIND_OF_PART.get(setting)
    known = BUILT_IN[kind] if kind is not None else {}
    return next((name for name, place in known.items() if load_object(setting, place) is value), None)


def _checked_policy(policy: Any) -> Policy | OraclePolicy:
    if isinstance(policy, Policy | OraclePolicy):
        return policy
    hint = ": a score alone becomes one by Policy(score, power='optimal')" if callable(policy) else ""
    raise FedtwinError(f"policy = {policy!r} is a {type(policy).__name__}, not a name nor a fedtwin.Policy{hint}.")


def _checked_rule(rule: Any) -> Any:
    from fedtwin.learning.aggregation import Aggregator

    if isinstance(rule, Aggregator):
        return rule
    raise FedtwinError(
        f"aggregation = {rule!r} is a {type(rule).__name__}, not a name nor a fedtwin.learning.aggregation.Aggregator."
    )


def _checked_model(model: Any) -> Any:
    if callable(model) and (isinstance(model, type) or not hasattr(model, "state_dict")):
        return model
    raise FedtwinError(
        f"model = {type(model).__name__} is not what makes a network: give a function or class that is called with the shape "
        "of an image and the number of classes, and makes a fresh torch.nn.Module."
    )
