"""Training speed on the CPU, ours and a plain PyTorch loop in one run: Fashion-MNIST, 30 devices of 70 to 100 samples,
small-cnn, one local epoch, batch 32, 15 in flight, FedAsync. Ours is end to end, with records; set-up is left out of both.

    fedtwin data fetch fashion-mnist
    python -m benchmarks.cpu_updates
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedtwin.config import load_config
from fedtwin.sim import simulate

UPDATES = 1200
REPEATS = 3
THREADS = WORKERS = 2
SETTINGS = {
    "learning.dataset": "fashion-mnist",
    "learning.model": "small-cnn",
    "learning.executor": "processes",
    "learning.workers": WORKERS,
    "learning.evaluate_every_s": 1e6,
}


def ours() -> dict[str, float]:
    """Updates per second between a tenth of the run and its end, so that starting the workers is left out."""
    config = load_config(overrides={**SETTINGS, "run.rounds": UPDATES})
    marks: dict[int, float] = {}

    def mark(selections: int) -> None:
        marks[selections] = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        simulate(config, out=Path(folder) / "run", progress=mark)
    first = UPDATES // 10
    rate = (UPDATES - first) / (marks[UPDATES] - marks[first])
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "updates_per_s": rate,
        "peak_mb": own,
        "peak_mb_per_worker": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def plain() -> dict[str, float]:
    from benchmarks.plain_loop import run_plain_loop

    rate = run_plain_loop(load_config(overrides=SETTINGS), UPDATES // 2, THREADS)
    return {"updates_per_s": rate, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_a_process_of_its_own(which: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", "benchmarks.cpu_updates", which], capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Alternates the two, so that neither has the quieter machine; prints medians and the ratio."""
    runs: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
    for _ in range(REPEATS):
        for which, measured in runs.items():
            measured.append(in_a_process_of_its_own(which))
    medians = {
        which: {key: sorted(run[key] for run in measured)[REPEATS // 2] for key in measured[0]}
        for which, measured in runs.items()
    }
    ours_, plain_ = medians["ours"], medians["plain"]
    ratio = ours_["updates_per_s"] / plain_["updates_per_s"]
    print(f"plain loop, {THREADS} threads : {plain_['updates_per_s']:6.1f} updates/s, {plain_['peak_mb']:.0f} MB")
    workers = f"and {ours_['peak_mb_per_worker']:.0f} MB for the largest worker"
    print(f"fedtwin, {WORKERS} workers     : {ours_['updates_per_s']:6.1f} updates/s, {ours_['peak_mb']:.0f} MB {workers}")
    print(f"ratio                  : {ratio:6.2f}")
    print(json.dumps({"runs": runs, "ratio": ratio}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps({"ours": ours, "plain": plain}[sys.argv[1]]()))
    else:
        main()
