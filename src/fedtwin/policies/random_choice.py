"""Random, Section V: any idle device, each as likely as another, at full power."""

from fedtwin.draws import Purpose, stream, uniform, word
from fedtwin.policies.base import Knobs, Policy, View

PURPOSE = int(Purpose.POLICY)


def score(view: View, knobs: Knobs) -> float:
    """A uniform number per (seed, device, round): the smallest of several is equally likely to be anyone's."""
    return uniform(word(stream(knobs.seed, PURPOSE, view.device), view.round))


POLICY = Policy(score, power="max")
