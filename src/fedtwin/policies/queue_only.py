"""As-Q-only, Section V: only the stability of the queues counts; the device still optimises its power."""

from fedtwin.policies.base import Knobs, Policy, View


def score(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    """−Q_n(t) D_n: the drift term of the Lyapunov function alone, Section IV-A."""
    return -view.queue * view.samples


POLICY = Policy(score, power="optimal")
