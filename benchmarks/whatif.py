"""How long a what-if takes, beside the readable way of the same question in the same run: ``python -m benchmarks.whatif``."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import fedtwin
from fedtwin.whatif import Answer

TIMES = 7


def timed(ask: Callable[[], Answer]) -> tuple[Answer, float, float]:
    """The answer, and seconds on the clock and of the processor."""
    begun, cpu = time.perf_counter(), time.process_time()
    answer = ask()
    return answer, time.perf_counter() - begun, time.process_time() - cpu


def main(rounds: int, worlds: int, readable_worlds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        fedtwin.simulate({"run.rounds": 2000, "run.engine": "compiled"}, out=folder)
        run = fedtwin.open_run(folder)

        def ask(**more: Any) -> Answer:
            question = {"at": 1500, "rounds": rounds, "set": {"policy.v": 1e4}, "look_back": False, **more}
            return fedtwin.whatif(run, **question)

        ask(worlds=worlds, engine="compiled")
        quick = [timed(lambda: ask(worlds=worlds, engine="compiled")) for _ in range(TIMES)]
        whole = [timed(lambda: ask(worlds=worlds, engine="compiled", look_back=True)) for _ in range(TIMES)]
        few, few_s, few_cpu_s = timed(lambda: ask(worlds=readable_worlds, engine="readable"))
        assert few == ask(worlds=readable_worlds, engine="compiled"), "the engines differ"
    question = f"{rounds:,} rounds, 30 devices, as it is and with another V"
    scale = worlds / readable_worlds
    print(f"| {question} | seconds | seconds of CPU |")
    print("|---|---|---|")
    for name, found in (("compiled", quick), ("compiled, with a look back", whole)):
        print(f"| {name}, {worlds} worlds | {median(s for _, s, _ in found):.2f} | {median(s for _, _, s in found):.2f} |")
    print(f"| readable, {worlds} worlds (from {readable_worlds}) | {scale * few_s:.1f} | {scale * few_cpu_s:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--readable-worlds", type=int, default=5)
    asked = parser.parse_args()
    main(asked.rounds, asked.worlds, asked.readable_worlds)
