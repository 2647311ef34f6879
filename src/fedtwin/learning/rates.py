"""The learning rate of one local training: a pure function of the round in which its device was asked."""

import math

from fedtwin.config import Config, LiveConfig

TELLING_SHARE = 0.8
"""Of the rounds of a schedule: a run of fewer has not trained with the small rates that a schedule is for."""


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


def short_of_the_schedule(config: Config, rounds: int) -> str | None:
    """A sentence where a run of so many rounds ends long before its rate has fallen."""
    learning, planned = config.learning, config.rounds_of_the_schedule
    if learning is None or learning.rate_schedule == "constant" or rounds >= TELLING_SHARE * planned:
        return None
    return (
        f"The run has {rounds} of the {planned} rounds of learning.rate_schedule = {learning.rate_schedule!r}: the rate falls "
        f"to {rate_of(config, rounds):.2g} and no further; learning.rate_rounds says over how many rounds it falls."
    )


def other_than_the_schedule(config: Config) -> str | None:
    """Either sentence, before a simulated run begins."""
    rounds = rounds_of(config, config.fleet.devices)
    if rounds > config.rounds_of_the_schedule:
        return past_the_schedule(config, config.rounds_of_the_schedule + 1)
    return short_of_the_schedule(config, rounds)


def rounds_of(config: Config, devices: int) -> int:
    """A synchronous round makes M of the run's selections, or as many as there are devices."""
    return config.run.rounds if config.run.mode != "sync" else -(-config.run.rounds // min(config.fleet.channels, devices))


def with_the_rounds_of_boards(config: Config) -> Config:
    """The settings of a live run with the schedule of the boards that it starts with, which may not be ``fleet.devices``."""
    learning, boards = config.learning, (config.live or LiveConfig()).start_with or config.fleet.devices
    if learning is None or learning.rate_schedule == "constant" or learning.rate_rounds:
        return config
    return config.model_copy(update={"learning": learning.model_copy(update={"rate_rounds": rounds_of(config, boards)})})
