"""The learning rate of one local training: a pure function of the round in which its device was asked."""

import math

from fedtwin.config import Config


def rate_of(config: Config, round_: int) -> float:
    """η(t) of round t = 1, 2, …: the learning rate; with a schedule over T rounds it falls to nothing.

    It rises over the first W rounds, by 1/W of the learning rate each. Then linear is η (1 − x), cosine η (1 + cos π x) / 2
    (Loshchilov and Hutter, 2017, without restarts), x = (t − 1 − W) / (T − W). From round T on it stays what it was there.
    """
    learning = config.learning
    if learning is None:
        raise ValueError("a run without [learning] has no rate")
    rounds, warmup = config.rounds_of_the_schedule, learning.rate_warmup_rounds
    passed = max(round_ - 1, 0)
    if passed < warmup:
        return learning.learning_rate * (passed + 1) / warmup
    if learning.rate_schedule == "constant":
        return learning.learning_rate
    share = (min(passed, rounds - 1) - warmup) / (rounds - warmup)
    return learning.learning_rate * (
        1.0 - share if learning.rate_schedule == "linear" else (1.0 + math.cos(math.pi * share)) / 2
    )


def past_the_schedule(config: Config, round_: int) -> str | None:
    """A sentence where the rate has fallen to nothing, and trainings go on: they hardly move the model."""
    learning = config.learning
    if learning is None or learning.rate_schedule == "constant" or round_ <= config.rounds_of_the_schedule:
        return None
    return (
        f"Round {round_} is past the {config.rounds_of_the_schedule} rounds of learning.rate_schedule = "
        f"{learning.rate_schedule!r}: the rate is {rate_of(config, round_):.2g} from here on, and what is trained hardly moves "
        "the model; learning.rate_rounds says over how many rounds it falls."
    )
