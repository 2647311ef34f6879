"""Plays the schedule of faults of a number, or of many, and says what happened.

python -m tests.live.simulated SEED
python -m tests.live.simulated FIRST LAST
"""

import logging
import sys
import time
from collections import Counter
from dataclasses import replace

from tests.live.simulated.schedule import play


def main() -> None:
    first, last = int(sys.argv[1]), int(sys.argv[-1])
    if len(sys.argv) == 2:
        outcome = play(first, level=logging.DEBUG)
        print(*outcome.said, sep="\n")
        print(replace(outcome.schedule, faults=()))
        print(*outcome.schedule.faults, sep="\n")
        print(outcome.trouble or f"well: {outcome.counts}, uploads again after {outcome.resumed_after_s:.1f} s")
        sys.exit(outcome.trouble is not None)
    begun, counts, slowest, failed = time.process_time(), Counter[str](), 0.0, 0
    had, happened = Counter[str](), Counter[str]()
    for seed in range(first, last + 1):
        outcome = play(seed)
        counts.update(outcome.counts)
        had.update([*outcome.schedule.has, *outcome.schedule.kinds])
        happened.update({what for what, count in outcome.features.items() if count})
        slowest = max(slowest, outcome.resumed_after_s)
        if outcome.trouble is not None:
            failed += 1
            print(f"seed {seed}: {outcome.trouble}"[:300], flush=True)
            print("   ", outcome.schedule.told, flush=True)
    count = last + 1 - first
    each_ms = 1000.0 * (time.process_time() - begun) / count
    print(f"{count} schedules, {failed} failed, {each_ms:.0f} ms each, uploads again after {slowest:.1f} s at most")
    print("schedules with:", *(f"{what} {schedules}" for what, schedules in had.most_common()), sep="\n  ")
    print("schedules in which it came about:", *(f"{what} {times}" for what, times in happened.most_common()), sep="\n  ")
    print(dict(counts))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
