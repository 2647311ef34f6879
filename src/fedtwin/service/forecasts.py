"""What the twin predicts an update of a device takes, by the run's power rule."""

from collections.abc import Callable

from fedtwin.config import Config
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.formulas.terms import Quantities, Terms, own_terms, terms_of
from fedtwin.policies import Prediction
from fedtwin.prediction import predict
from fedtwin.runs import Run

Predictor = Callable[[int, float, float, float], Prediction]


def power_rule_of(run: Run, config: Config, *, trust: bool = False) -> str | None:
    """Of a policy of the user's own only what is written down, unless its code may be run: None where nothing is."""
    if config.policy.power != "scheme":
        return config.policy.power
    if "policy.name" in config.own_code and not trust:
        return str(run.summary["power"]) if run.finished else None
    from fedtwin.policies import power_rule

    return power_rule(config)


def predictor(run: Run, config: Config, power_rule: str) -> Predictor:
    """Device, gain, CPU frequency and samples to time, energy and cost."""
    terms, devices = terms_of(config), run.devices
    own = list(zip(*(devices[name].to_pylist() for name in Quantities._fields), strict=True))
    of_device: list[Terms] = [own_terms(terms, Quantities(*values)) for values in own]
    rule = optimal_plan if power_rule == "optimal" else full_power_plan

    def predicted(device: int, gain: float, cpu_hz: float, samples: float) -> Prediction:
        return predict(rule, of_device[device], gain, cpu_hz, samples)

    return predicted
