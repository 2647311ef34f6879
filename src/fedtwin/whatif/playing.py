"""A fork played on many worlds, by the engine that is quicker: the numbers are the same."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from fedtwin.compiling import can_compile
from fedtwin.errors import CannotCompileError
from fedtwin.sim.compiled import READABLE_DEVICE_S, READABLE_ROUND_S
from fedtwin.sim.fast.compile import LOAD_S, Exchanged, exchanged_in, is_users, obstacle_to_compiling
from fedtwin.sim.fast.run import FAILURES
from fedtwin.whatif.answer import Played
from fedtwin.whatif.compiled import is_made, play_compiled
from fedtwin.whatif.fork import Fork
from fedtwin.whatif.points import points_of
from fedtwin.whatif.readable import play_readable
from fedtwin.whatif.states import states_of
from fedtwin.whatif.worlds import OneWorld

EngineName = Literal["auto", "readable", "compiled"]


def ready(fork: Fork, rounds: int) -> Fork:
    """To be played for so many rounds, with what the policy has kept of the devices."""
    return replace(fork.until(rounds), states=states_of(fork))


def play(fork: Fork, worlds: Iterable[OneWorld], rounds: int, engine: EngineName) -> list[Played]:
    """The fork, made ``ready``, in every world. Compiled code of the user's is held against what is written, in one of them."""
    points, all_worlds = points_of(fork, rounds), list(worlds)
    exchanged = exchanged_in(all_worlds[0].config)
    if engine == "compiled" or (engine == "auto" and _is_worth_compiling(fork, exchanged, rounds * len(all_worlds))):
        try:
            if (obstacle := obstacle_to_compiling(exchanged)) is not None:
                raise obstacle
            found = list(play_compiled(fork, all_worlds, points))
            if not is_users(exchanged) or found[0] == play_readable(fork, all_worlds[0], points):
                return found
        except CannotCompileError:
            if engine == "compiled":
                raise
        except FAILURES:  # of the user's own code: the readable way says where, if it fails too
            if not is_users(exchanged):
                raise
    return [play_readable(fork, one, points) for one in all_worlds]


def _is_worth_compiling(fork: Fork, exchanged: Exchanged, rounds: int) -> bool:
    """Where the compiled engine is the same: it counts what it hears of link and processor as one, telemetry does not."""
    if not can_compile() or (exchanged.policy.predicts and any(one.gains != one.cpus for one in fork.twin.devices)):
        return False
    return is_made(exchanged) or rounds * (READABLE_ROUND_S + READABLE_DEVICE_S * fork.devices) > LOAD_S
