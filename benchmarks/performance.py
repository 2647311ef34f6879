"""How fast the engines are, each beside its baseline in the same run; writes docs/performance.md and its plot.

python -m benchmarks.performance          # about four minutes
python -m benchmarks.performance --quick  # fewer rounds, nothing is written
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.sweep_scaling import measure as measure_sweep
from fedtwin.config import Config, load_config
from fedtwin.draws import Purpose, ranks
from fedtwin.sim import simulate
from fedtwin.sim.fast import run as fast
from fedtwin.sim.fast.compile import exchanged_in, kernels
from fedtwin.sim.fast.state import Start
from fedtwin.world.fleet import fleet_columns

PAGE = Path("docs/performance.md")
PLOT = Path("docs/results/decisions.png")
BEGIN, END = "<!-- measured -->", "<!-- end -->"
FLEETS = (30, 100, 300, 1_000, 3_000, 10_000, 100_000, 1_000_000)


class Decision(NamedTuple):
    """Microseconds for one round at N devices: by scan, by index with nobody known yet, and with everybody well known."""

    devices: int
    scan_us: float
    cold_us: float
    warm_us: float


def timed(work: Callable[[], object], repeats: int = 3) -> float:
    """The best of several."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def rounds_per_second(rounds: int) -> dict[str, float]:
    """N = 30, M = 15, CU-UCB, one core."""
    readable, compiled = ({"run.engine": engine} for engine in ("readable", "compiled"))
    few = max(1000, rounds // 100)
    simulate(load_config(overrides={**compiled, "run.rounds": 10}), records=False)
    speeds = {
        "readable, no records": few
        / timed(lambda: simulate(load_config(overrides={**readable, "run.rounds": few}), records=False)),
        "compiled, no records": rounds
        / timed(lambda: simulate(load_config(overrides={**compiled, "run.rounds": rounds}), records=False)),
        "compiled, records in memory": rounds
        / timed(lambda: simulate(load_config(overrides={**compiled, "run.rounds": rounds}))),
    }
    with tempfile.TemporaryDirectory() as folder:
        for engine, count in (("readable", few), ("compiled", rounds)):
            config = load_config(overrides={"run.engine": engine, "run.rounds": count})
            numbers = iter(range(100))
            speeds[f"{engine}, records in Parquet"] = count / timed(
                lambda c=config, n=numbers, e=engine: simulate(c, out=Path(folder) / f"{e}{next(n)}")  # type: ignore[misc]
            )
    return speeds


def fleet_config(devices: int, rounds: int, *, bonus_scale: float) -> Config:
    """One device in 30 in flight, at most 1,000; D_min at half of what one selection a round can give."""
    channels = min(max(devices // 2 if devices <= 30 else devices // 30, 1), 1000)
    return load_config(
        overrides={
            "fleet.devices": devices,
            "fleet.channels": channels,
            "run.rounds": rounds,
            "objective.min_mean_samples": 40 / devices,
            "policy.bonus_scale": bonus_scale,
        }
    )


def started(config: Config, *, indexed: bool, warm: bool) -> Start:
    """A run at its start; ``warm``: everybody seen 10 to 60 times, with costs and queues that differ, and a clock to match."""
    fleet = fleet_columns(config)
    was, fast.INDEX_FROM = fast.INDEX_FROM, 0 if indexed else 10**9
    try:
        start = fast.prepare(config, fleet, ranks(config.run.seed, Purpose.TIES, len(fleet.samples)))
    finally:
        fast.INDEX_FROM = was
    if warm:
        warm_up(start)
        start = start._replace(rules=start.rules._replace(rounds=int(start.state.run["round"][0]) + config.run.rounds))
    return start


def warm_up(start: Start) -> None:
    run, devices, rng = start.state.run, start.state.devices, np.random.default_rng(0)
    count = len(devices)
    devices["selections"] = devices["observations"] = rng.integers(10, 61, count)
    devices["cost_sum"] = devices["observations"] * rng.uniform(0.3, 0.7, count)
    devices["queue"] = rng.uniform(0.0, 80.0, count)
    now = int(devices["observations"].sum())
    devices["queue_round"] = now
    run["round"], run["queue_sum"], run["queue_round_sum"] = now, devices["queue"].sum(), now * count


def microseconds(config: Config, *, indexed: bool, warm: bool, rounds: int) -> float:
    """Per round, set-up aside: choosing, asking, and keeping scores in order."""
    own = kernels(exchanged_in(config))
    start = started(config, indexed=indexed, warm=warm)
    while not own.begin(start.state, start.rules, start.order):
        pass
    first = int(start.state.run["round"][0])
    begun = time.perf_counter()
    while not own.play(start.state, start.rules, first + rounds):
        if int(start.state.run["round"][0]) >= first + rounds:
            break
    return 1e6 * (time.perf_counter() - begun) / (int(start.state.run["round"][0]) - first)


def decisions(rounds: int) -> list[Decision]:
    found = []
    for devices in FLEETS:
        cold, warm = (fleet_config(devices, 10**9, bonus_scale=scale) for scale in (1.0, 0.01))
        few = max(100, min(rounds, 20_000_000 // devices))
        found.append(
            Decision(
                devices,
                microseconds(warm, indexed=False, warm=True, rounds=few),
                microseconds(cold, indexed=True, warm=False, rounds=rounds),
                microseconds(warm, indexed=True, warm=True, rounds=rounds),
            )
        )
        print(f"  {found[-1]}", file=sys.stderr, flush=True)
    return found


MEMORY = """
import gc
from pathlib import Path
from fedtwin.config import load_config
from fedtwin.sim import simulate
def run(devices):
    simulate(load_config(overrides={"fleet.devices": devices, "fleet.channels": 1000, "run.rounds": 10000,
             "objective.min_mean_samples": 40 / devices, "run.engine": "compiled"}), records=False)
def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
run(20_000)
gc.collect()
Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
before = memory("VmRSS")
run(1_000_000)
print((memory("VmHWM") - before) / 1_000_000)
"""


def bytes_per_device() -> float:
    """How much a process that has run before grows at the most in a run of 1,000,000 devices, all of ``simulate`` counted."""
    return float(subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout)


def first_call_s() -> float:
    """A fresh process that runs 1,000 rounds on code compiled before, Python's start included."""
    command = [sys.executable, "-m", "fedtwin", "run", "--rounds", "1000", "--set", "run.engine=compiled"]
    return timed(lambda: subprocess.run(command, capture_output=True, check=True))


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
    import numba

    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, Numba {numba.__version__}"


def table(speeds: dict[str, float], found: list[Decision], memory: float, first_s: float, sweep: list[Any]) -> str:
    base = speeds["readable, no records"]
    lines = [
        f"Machine: {machine()}.",
        "",
        "| N = 30, M = 15, CU-UCB, one core | rounds/s | against readable |",
        "|---|---|---|",
        *(f"| {what} | {speed:,.0f} | {speed / base:.1f} × |" for what, speed in speeds.items()),
        "",
        "| devices | scan, µs per round | index, nobody known | index, everybody known | scan / index |",
        "|---|---|---|---|---|",
        *(
            f"| {d.devices:,} | {d.scan_us:,.1f} | {d.cold_us:.1f} | {d.warm_us:.1f} | {d.scan_us / d.warm_us:,.1f} × |"
            for d in found
        ),
        "",
        f"Memory: {memory:.0f} bytes per device (peak, all of `simulate`). "
        f"First call of a fresh process on code compiled before: {first_s:.1f} s, Python's start included.",
        "",
        "| runs of 20,000 rounds | runs/s | against the plain loop |",
        "|---|---|---|",
        *(f"| {row['name']} | {row['runs_per_s']:,.0f} | {row['speedup']:.2f} × |" for row in sweep),
    ]
    return "\n".join(lines)


def draw(found: list[Decision]) -> None:
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = picture.subplots()
    x = [d.devices for d in found]
    axes.loglog(x, [d.scan_us for d in found], "o-", label="scan")
    axes.loglog(x, [d.warm_us for d in found], "s-", label="index, everybody known")
    axes.loglog(x, [d.cold_us for d in found], "^-", label="index, nobody known")
    axes.set(xlabel="devices", ylabel="µs per round", title="One round of CU-UCB: choose, ask, keep in order")
    axes.grid(alpha=0.3)
    axes.legend()
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(PLOT, dpi=150, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; nothing is written")
    quick = parser.parse_args().quick
    speeds = rounds_per_second(200_000 if quick else 3_000_000)
    print(json.dumps(speeds, indent=1), file=sys.stderr, flush=True)
    found = decisions(5_000 if quick else 100_000)
    measured = table(speeds, found, bytes_per_device(), first_call_s(), measure_sweep(seeds=10 if quick else 200))
    print(measured)
    if quick:
        return
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{measured}\n{END}{after}", encoding="utf-8")
    draw(found)


if __name__ == "__main__":
    main()
