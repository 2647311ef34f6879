"""Fixes that are undone, to see whether, and after how many seeds, the schedules of faults find that.

python -m tests.live.simulated.undone     writes the table of docs/faults.md
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fedtwin.live.device import planner
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.stream_ledger import StreamLedger
from fedtwin.live.server.datapath import DataPath
from fedtwin.live.server.lease import Lease
from fedtwin.live.server.uploads import Uploads
from tests.live.simulated.schedule import Outcome, play

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
BEGIN, END = "<!-- undone -->", "<!-- end of undone -->"
MOST_SEEDS = 400


async def _nothing(*_: Any) -> None:
    pass


async def _none_changed(_: Any) -> list[str]:
    return []


async def _believed(*_: Any) -> bool:
    return True


def _never(value: object) -> Any:
    """An attribute that nobody can set."""
    return property(lambda _: value, lambda _, __: None)


@contextmanager
def _unfenced() -> Iterator[None]:
    with (
        patch.object(StreamLedger, "_require_ours", _nothing),
        patch.object(Lease, "_look_who_has_it", _nothing),
        patch.object(Lease, "stands", True),
    ):
        yield


@dataclass(frozen=True)
class Fix:
    """What was mended once, in which commit, and how that is undone."""

    what: str
    commit: str
    undo: Callable[[], Any]

    @contextmanager
    def undone(self) -> Iterator[None]:
        with self.undo():
            yield


FIXES = {
    "pause": Fix(
        "a pause in the first uploads is taken for the link, for ever", "a8904d8",
        lambda: patch.object(planner, "FIRST_DOUBT_S", math.inf),
    ),
    "store": Fix(
        "a broker that comes back with an empty store is left without streams", "a8904d8",
        lambda: patch.object(DataPath, "_make_missing", _nothing),
    ),
    "consumer": Fix(
        "a deleted consumer, or one that delivers nothing, is not made again", "a8904d8",
        lambda: patch.object(DataPath, "_delivered_since", _believed),
    ),
    "frozen": Fix(
        "a broker of ours that stores nothing is not started again", "a8904d8",
        lambda: patch.object(DataPath, "_start_the_broker_again", _nothing),
    ),
    "settings": Fix(
        "settings of stream and consumer that somebody changed stay", "7222f86",
        lambda: patch.object(Uploads, "set_right", _none_changed),
    ),
    "ledger": Fix(
        "an edge server whose ledger cannot be written lives on, where a hello met that", "af64f76",
        lambda: patch.object(LiveRun, "failure", _never(None), create=True),
    ),
    "fence": Fix(
        "an edge server that was overtaken looks neither at the lease nor at the number of its append", "f4626b6",
        _unfenced,
    ),
}  # fmt: skip


def first_found(fix: Fix, most_seeds: int = MOST_SEEDS) -> Outcome | None:
    """The first seed that does not hold without the fix."""
    with fix.undone():
        for seed in range(most_seeds):
            outcome = play(seed)
            if outcome.trouble is not None:
                return outcome
    return None


def main() -> None:
    names = sys.argv[1:] or list(FIXES)
    rows = ["| undone | fixed in | seeds until it is found | by |", "|---|---|---|---|"]
    for name in names:
        fix = FIXES[name]
        outcome = first_found(fix)
        by = "" if outcome is None else outcome.schedule.told
        count = f"not in {MOST_SEEDS}" if outcome is None else str(outcome.seed + 1)
        rows.append(f"| {fix.what} | {fix.commit} | {count} | {by} |")
        print(rows[-1], "" if outcome is None else outcome.trouble, flush=True)
    if names == list(FIXES):
        text = PAGE.read_text(encoding="utf-8")
        table = "\n".join([BEGIN, *rows, END])
        PAGE.write_text(text.partition(BEGIN)[0] + table + text.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
