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
    for seed in range(first, last + 1):
        outcome = play(seed)
        counts.update(outcome.counts)
        slowest = max(slowest, outcome.resumed_after_s)
        if outcome.trouble is not None:
            failed += 1
            print(f"seed {seed}: {outcome.trouble}"[:300], flush=True)
            print("   ", "; ".join(f"{fault.what} of {fault.who}" for fault in outcome.schedule.faults), flush=True)
    each_ms = 1000.0 * (time.process_time() - begun) / (last + 1 - first)
    print(f"{last + 1 - first} schedules, {failed} failed, {each_ms:.0f} ms each, uploads again after {slowest:.1f} s at most")
    print(dict(counts))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
