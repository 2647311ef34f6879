"""What the service costs for 5,000 devices and a million rounds: any moment, search and history over HTTP, and its memory.

python -m benchmarks.service          # some minutes, most of them for the run itself
python -m benchmarks.service --quick  # a hundredth of the rounds
python -m benchmarks.service --run DIR  # of a run that is there
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

ASKED = 30
IDLE = 'eq(features/training/properties/status,"idle")'
FILTER = f'and({IDLE},gt(features/training/properties/queue,5),like(thingId,"*device-1*"))'


def simulate(folder: Path, rounds: int, devices: int) -> None:
    settings = [f"fleet.devices={devices}", f"fleet.channels={devices // 10}", "objective.min_mean_samples=0.01"]
    options = [option for setting in [*settings, "run.engine=compiled"] for option in ("--set", setting)]
    command = [sys.executable, "-m", "fedtwin", "run", "--rounds", str(rounds), *options, "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ask(base: str, path: str) -> tuple[Any, float]:
    begun = time.perf_counter()
    with urllib.request.urlopen(base + path, timeout=300) as answer:
        data = answer.read()
    return json.loads(data), time.perf_counter() - begun


def cpu_s(pid: int) -> float:
    """What the process has computed so far."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> str:
    """What is resident now, and what was at most."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    now, most = (next(int(one.split()[1]) * 1024 / 1e6 for one in lines if one.startswith(name)) for name in ("VmRSS", "VmHWM"))
    return f"{now:8.0f} MB (at most {most:.0f} MB)"


def measure(folder: Path) -> None:
    command = [sys.executable, "-m", "fedtwin", "serve", str(folder), "--port", "0"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        base = process.stderr.readline().split(" at ")[1].strip().rstrip("/")
        (told,) = ask(base, "/api/runs")[0]["runs"]
        run = f"/api/runs/{told['id']}"
        fleet, _ = ask(base, f"{run}/fleet")
        print(f"{told['rounds']:,} rounds, {told['devices']:,} devices; ready after {time.perf_counter() - begun:.1f} s")
        print(f"memory when ready         {memory_of(process.pid)}")
        chance, filtered = random.Random(0), urllib.parse.quote(FILTER)
        seconds = [chance.uniform(0.0, told["end_s"]) for _ in range(ASKED)]
        sort = "sort(-features/training/properties/queue),size(25)"
        asked = {
            "a moment by the slider": [f"{run}/fleet?at=seconds:{second!r}" for second in seconds],
            "search": [f"/api/2/search/things?filter={filtered}&option={sort}&fields=thingId"] * ASKED,
            "tasks of two seconds": [f"{run}/tasks?from_s={max(second - 2, 0)!r}&to_s={second!r}" for second in seconds],
            "a decision": [f"{run}/decision?round={chance.randint(1, told['rounds'])}" for _ in range(ASKED)],
            "history of a device": [
                f"/api/2/things/{told['id']}:device-{number}/history?property=features/link/properties/gain"
                for number in range(ASKED)
            ],
            "curves": [f"{run}/curves?points={600 + number}" for number in range(5)],
        }
        for name, paths in asked.items():
            before = cpu_s(process.pid)
            took = sorted(ask(base, path)[1] for path in paths)
            used = (cpu_s(process.pid) - before) / len(paths)
            print(f"{name:25} {1e3 * median(took):8.1f} ms (at worst {1e3 * took[-1]:.1f} ms; {1e3 * used:.1f} ms of CPU each)")
        judged = ask(base, f"{run}/fidelity")[1]
        print(f"the track record, once    {1e3 * judged:8.1f} ms")
        print(f"memory after all that     {memory_of(process.pid)}")
        assert len(fleet["columns"]["name"]) == told["devices"]
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rounds")
    parser.add_argument("--run", type=Path, help="the folder of a run")
    given = parser.parse_args()
    if given.run is not None:
        measure(given.run)
    else:
        with tempfile.TemporaryDirectory() as place:
            simulate(Path(place, "run"), 10_000 if given.quick else 1_000_000, 5_000)
            measure(Path(place, "run"))
