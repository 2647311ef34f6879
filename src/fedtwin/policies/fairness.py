"""As-fairness and Sy-fairness, Section V: every device takes part equally often, at full power."""

from fedtwin.policies.base import Knobs, Policy, View


def score(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    """How often the device was selected: the least-selected goes first."""
    return float(view.selections)


POLICY = Policy(score, power="max")
