"""As-Q-only, Section V: only the stability of the queues counts; the device still optimises its power."""

from fedtwin.policies.base import Knobs, Policy, View, rounds_ahead


def score(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    """−Q_n(t) D_n: the drift term of the Lyapunov function alone, Section IV-A."""
    return -view.queue * view.samples


def lead(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:
    """The second gains by its larger queue growth D_min D_n."""
    closing = max(behind.samples - ahead.samples, 0.0) * knobs.min_mean_samples
    size = abs(ahead.queue) * ahead.samples + abs(behind.queue) * behind.samples
    return rounds_ahead(gap, closing, size, (ahead.samples + behind.samples) * knobs.min_mean_samples)


def explain(view: View, knobs: Knobs) -> dict[str, float]:
    """The queue alone."""
    return {"queue": score(view, knobs)}


POLICY = Policy(score, power="optimal", lead=lead, explain=explain)
