"""What an answer rests on, in sentences: what was heard, what is assumed, and what the same question was worth before."""

from collections.abc import Iterator

import numpy as np

from fedtwin.policies import OraclePolicy, policy_of
from fedtwin.whatif.answer import Interval
from fedtwin.whatif.fork import Fork
from fedtwin.whatif.heard import Heard
from fedtwin.whatif.knowledge import Knowledge
from fedtwin.whatif.measured import Measured

CORRELATED = 0.15


def notes_of(fork: Fork, heard: Heard, knowledge: Knowledge, measured: Measured | None) -> tuple[str, ...]:
    """Of the fork as it is."""
    never = int((heard.counts == 0).sum())
    like_others = f"; of {never} nothing was heard, they are taken to be like the others" if never else ""
    notes = [
        f"Worlds are sampled from what was heard before round {fork.round + 1}: {heard.total} answers of "
        f"{fork.devices - never} devices{like_others}.",
        f"Gains are taken to vary from round to round with the shape {knowledge.shape:.3g} (1 is Rayleigh's), CPU frequencies "
        f"by {knowledge.cpu_hz_std:.3g} Hz, both as they did so far, without memory.",
    ]
    if heard.lag_correlation is not None and heard.lag_correlation > CORRELATED:
        notes.append(
            f"Gains of a device that follow each other are alike (correlation {heard.lag_correlation:.2f}), those of the "
            "sampled worlds are not: what will be may lie outside the intervals more often than in one case of ten."
        )
    if _chooses_by_the_moment(fork):
        notes.append("Devices were asked when their links were good: the gains that were heard are better than those to come.")
    if heard.silent:
        often = f"In {heard.silent} of {heard.asked} cases a device did not answer"
        notes.append(f"{often}; it is taken to be as likely for every device, in every round.")
    notes.extend(_who_is_away(fork))
    if measured is not None:
        time, energy = measured.factors
        notes.append(
            f"Over {len(measured.device)} updates, what was measured came to {time:.3g} times the seconds and {energy:.3g} "
            f"times the joules that are modelled; it is taken to go on so, and to vary as between {len(measured.logs)} parts."
        )
    elif fork.live:
        notes.append("Tasks are taken to last and to cost what is modelled, not what boards may measure in the end.")
    return tuple(notes)


def _who_is_away(fork: Fork) -> Iterator[str]:
    kinds = {device: str(known.status) for device, known in enumerate(fork.twin.devices)}
    kinds |= dict.fromkeys(fork.drained, "drained")
    for kind in ("offline", "quarantined", "drained"):
        if count := sum(found == kind for found in kinds.values()):
            yield f"{count} {'device is' if count == 1 else 'devices are'} {kind}, and taken to stay so."


def _chooses_by_the_moment(fork: Fork) -> bool:
    """By what only the moment of the decision can tell of a link."""
    policy = policy_of(fork.config)
    return isinstance(policy, OraclePolicy) or (policy.predicts and fork.config.twin.gain == "current")


def record_of(earlier: Fork, rounds: int, said: Interval, came_to: float) -> str:
    """What the same question was worth."""
    if np.isnan(came_to):
        return f"Nobody was selected in the {rounds} rounds before."
    if said.low is None or said.high is None:
        return (
            f"Asked at round {earlier.round + 1} about the next {rounds} rounds, it would have said that everybody declines, "
            f"but updates were made, at a mean cost of {came_to:.4f}: do not rely on it."
        )
    verdict = "inside" if said.low <= came_to <= said.high else "outside"
    return (
        f"Asked at round {earlier.round + 1} about the next {rounds} rounds, it would have said {said.low:.4f} to "
        f"{said.high:.4f} for the mean cost, which came to {came_to:.4f}: {verdict}."
    )
