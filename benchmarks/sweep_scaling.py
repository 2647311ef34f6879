"""Runs per second of one sweep with 1, 2, … worker processes up to all cores, beside a plain loop of ``simulate`` in the same
run, all on the compiled engine. The sweep journals every run and writes its Parquet; the workers are started, and have loaded
the compiled code, before the clock is.

    python -m benchmarks.sweep_scaling [rounds] [seeds]
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedtwin.experiments.batches.backends import LocalBackend, default_workers
from fedtwin.experiments.sweep import Sweep, sweep_runs
from fedtwin.sim import simulate

SPEC = """
schemes = ["CU-UCB", "As-fairness"]
seeds = {seeds}
rounds = {rounds}
[config.run]
engine = "compiled"
[grid]
"fleet.channels" = [5, 15]
"""


def measure(rounds: int = 20_000, seeds: int = 200) -> list[dict[str, Any]]:
    """One row for the plain loop, and one for every number of workers."""
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.toml"
        spec.write_text(SPEC.format(rounds=rounds, seeds=seeds), encoding="utf-8")
        configs = [job.config for job in sweep_runs(spec)[1]]
        simulate(configs[0], records=False)
        simulate(configs[-1], records=False)
        began = time.perf_counter()
        for config in configs:
            simulate(config, records=False)
        rows = [_row("plain loop", len(configs), time.perf_counter() - began)]
        for workers in _doublings(default_workers()):
            backend = LocalBackend(workers)
            backend.start()
            warm_up = Path(folder) / "warm_up.toml"
            warm_up.write_text(SPEC.format(rounds=rounds, seeds=10), encoding="utf-8")
            Sweep(warm_up, Path(folder) / f"warm_up_{workers}").run(backend=backend)
            began = time.perf_counter()
            Sweep(spec, Path(folder) / str(workers)).run(backend=backend)
            rows.append(_row(f"sweep, {workers} workers", len(configs), time.perf_counter() - began))
            backend.close()
    for row in rows:
        row["speedup"] = row["runs_per_s"] / rows[0]["runs_per_s"]
    return rows


def _doublings(most: int) -> list[int]:
    return sorted({min(2**k, most) for k in range(most.bit_length() + 1)})


def _row(name: str, runs: int, seconds: float) -> dict[str, Any]:
    return {"name": name, "runs": runs, "seconds": seconds, "runs_per_s": runs / seconds}


def main() -> None:
    for row in measure(*map(int, sys.argv[1:])):
        speed = f"{row['runs_per_s']:9.1f} runs/s {row['speedup']:6.2f} ×"
        print(f"{row['name']:20s} {row['runs']:7d} runs {row['seconds']:8.2f} s {speed}")


if __name__ == "__main__":
    main()
