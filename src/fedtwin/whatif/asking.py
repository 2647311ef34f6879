"""``fedtwin.whatif``: a run as it stands, played on many worlds under its own settings and under others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtwin.errors import FedtwinError
from fedtwin.given import truth_given, whole_number
from fedtwin.runs import Run, open_run
from fedtwin.whatif.answer import Answer, Played, difference_of, future_of
from fedtwin.whatif.changing import changed
from fedtwin.whatif.fork import Fork, fork_of
from fedtwin.whatif.heard import heard_of
from fedtwin.whatif.knowledge import Knowledge
from fedtwin.whatif.measured import Measured, as_measured, by_their_word, measured_by
from fedtwin.whatif.playing import EngineName, play, ready
from fedtwin.whatif.states import require_trust
from fedtwin.whatif.telling import notes_of, record_of
from fedtwin.whatif.worlds import sampled_worlds
from fedtwin.whatif.worlds import true_world as world_of

MOST_WORLDS, MOST_ROUNDS = 10_000, 10_000_000
SHORTEST_LOOK_BACK = 20
OF_THE_WORLD = ("world.channel", "world.load", "world.availability", "world.sensing")


def whatif(
    run: str | Path | Run,
    *,
    at: int | None = None,
    set: Mapping[str, Any] | None = None,
    without: Sequence[int | str] = (),
    add: int = 0,
    rounds: int = 1000,
    worlds: int = 100,
    seed: int = 0,
    trust: bool = False,
    true_world: bool = False,
    look_back: bool = True,
    engine: EngineName = "auto",
) -> Answer:
    """What a run comes to in the next rounds, as it is and under other settings. The run's folder is only read.

    :param run: a run folder, finished or not, simulated or live; or a ``Run`` that was opened.
    :param at: the round to fork at, the first that is played; by default the one after all that is written down.
    :param set: settings that are others, ``{"policy.v": 1e4}``.
    :param without: devices that are lost, by number or name.
    :param add: how many new ones join, each like some that is there.
    :param rounds: how far to look ahead, in rounds; in synchronous mode selections.
    :param worlds: how many worlds are sampled.
    :param seed: of the sampled worlds. The same question and seed give the same answer.
    :param trust: whether a policy of your own may be run.
    :param true_world: play on in the simulation's own world, which no server knows: one world, and no doubt.
    :param look_back: also ask the same at an earlier round, and say in the notes what that was worth.
    :param engine: how futures are computed; no number depends on it.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    rounds, worlds = _number("rounds", rounds, 1, MOST_ROUNDS), _number("worlds", worlds, 2, MOST_WORLDS)
    seed, trust = _number("seed", seed, 0, 2**63 - 1), truth_given("trust", trust)
    true_world, look_back = truth_given("true_world", true_world), truth_given("look_back", look_back)
    if engine not in ("auto", "readable", "compiled"):
        raise FedtwinError(f"engine = {engine!r} is not allowed: it must be 'auto', 'readable' or 'compiled'.")
    require_trust(opened.config, ("policy.name", *(OF_THE_WORLD if true_world else ())), trust=trust)
    begun = fork_of(opened, at)
    other = changed(begun, set or {}, without, add)
    require_trust(other.config, ("policy.name",), trust=trust)
    forks = [ready(changed(begun, {}, (), 0), rounds)]
    if set or without or add:
        forks.append(ready(other, rounds))
    if true_world:
        futures = [play(fork, [world_of(fork, opened)], rounds, engine) for fork in forks]
        notes: tuple[str, ...] = ("This is the future in the simulation's own world, which no server knows.",)
    else:
        heard = heard_of(begun.rows, begun.devices)
        known = [Knowledge(heard, fork.added) for fork in forks]
        measured = measured_by(opened, begun, rounds)
        futures = [
            _played(fork, knowledge, rounds, worlds, seed, engine, measured)
            for fork, knowledge in zip(forks, known, strict=True)
        ]
        notes = notes_of(begun, heard, known[0], measured)
        if look_back:
            notes = (*_look_back(opened, begun, rounds, worlds, seed, engine), *notes)
    as_is, what_if = futures[0], futures[-1]
    return Answer(
        str(opened.path),
        begun.round + 1,
        rounds,
        len(as_is),
        future_of(as_is),
        future_of(what_if),
        difference_of(as_is, what_if),
        (*notes, *other.notes),
    )


def _played(
    fork: Fork, knowledge: Knowledge, rounds: int, worlds: int, seed: int, engine: EngineName, measured: Measured | None
) -> list[Played]:
    """By the paper's model, and where boards have measured otherwise, as they did."""
    if measured is None:
        return play(fork, sampled_worlds(fork, knowledge, worlds, seed), rounds, engine)
    told = by_their_word(fork, measured)
    found = play(told, sampled_worlds(told, knowledge, worlds, seed), rounds, engine)
    factors = measured.sample(len(found), seed)
    return [as_measured(one, factors[place], measured, fork) for place, one in enumerate(found)]


def _look_back(run: Run, now: Fork, rounds: int, worlds: int, seed: int, engine: EngineName) -> tuple[str, ...]:
    """The same question at an earlier round, whose answer is known by now."""
    rounds = min(rounds, now.round // 2)
    if now.sync or rounds < SHORTEST_LOOK_BACK:
        return ()
    try:
        earlier = fork_of(run, now.round + 1 - rounds)
    except FedtwinError:  # a live run may have asked nobody in just that round
        return ()
    fork, knowledge = ready(changed(earlier, {}, (), 0), rounds), Knowledge(heard_of(earlier.rows, earlier.devices))
    measured = measured_by(run, earlier, rounds)
    said = future_of(_played(fork, knowledge, rounds, worlds, seed, engine, measured)).mean_cost
    since = now.rows.only((now.rows.round > earlier.round) & ~now.rows.declined)
    return (record_of(earlier, rounds, said, float(np.mean(since.cost)) if len(since) else np.nan),)


def _number(name: str, value: Any, least: int, most: int) -> int:
    number = whole_number(value)
    if number is None or not least <= number <= most:
        raise FedtwinError(f"{name} = {value!r} is not allowed: it must be a whole number from {least} to {most}.")
    return number
