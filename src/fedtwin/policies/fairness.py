"""As-fairness and Sy-fairness, Section V: every device takes part equally often, at full power."""

import math

from fedtwin.policies.base import Knobs, Policy, View


def score(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    """How often the device was selected: the least-selected goes first."""
    return float(view.selections)


def lead(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:  # noqa: ARG001
    """Counts change only when a device is selected."""
    return math.inf


POLICY = Policy(score, power="max", lead=lead)
