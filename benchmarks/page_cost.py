"""What the page of a live run costs its training: uploads in a second and the time the run takes, without it and with viewers.

python -m benchmarks.page_cost                  # the demonstration with 30 devices, in pairs: no page, a page with five viewers
python -m benchmarks.page_cost --saturated      # a fleet as fast as its edge server: no page, a page, a page with five viewers
python -m benchmarks.page_cost --quick          # small, once; also with --saturated
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import mean, stdev

from benchmarks.demo_run import ADDRESS, LIMIT_S, Line, demo, lines_of
from benchmarks.live_overhead import cpu_s, rss_mb, write_model
from fedtwin.live import LocalFleet

LOOK_S = 0.25
FASTEST = {"objective.max_time_s": 100.0, "objective.max_energy_j": 100.0}
Found = dict[str, float]
Measure = Callable[[Path, int, int, int | None], Found]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def page_under(pid: int) -> int | None:
    """The process that serves a page, below this one."""
    for child in children_of(pid):
        with suppress(OSError):
            if b"\0serve\0" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    return None


def pace_of(lines: list[Line]) -> Found:
    """From the start of the run to its last upload; a tenth is left out of the rate, which takes some time to settle."""
    began_s = next(wall_s for wall_s, event in lines if event["kind"] == "started")
    applied = [wall_s for wall_s, event in lines if event["kind"] == "applied"]
    first = len(applied) // 10
    return {
        "uploads_per_s": (len(applied) - first - 1) / (applied[-1] - applied[first]),
        "run_s": applied[-1] - began_s,
    }


class Viewers:
    """Five by default, as a process of their own."""

    def __init__(self, address: str, count: int) -> None:
        command = [sys.executable, "-m", "benchmarks.viewers", address, str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def told(self) -> Found:
        said, _ = self._process.communicate(timeout=LIMIT_S)
        return {f"viewers_{name}": value for name, value in json.loads(said).items()}


def paced(folder: Path, devices: int, rounds: int, viewers: int | None) -> Found:
    """One demonstration, with a page and so many viewers; None: without a page."""
    with demo(folder, devices, rounds, page=viewers is not None) as running:
        looking = Viewers(running.address(), viewers) if viewers else None
        running.wait_until_finished()
        told = looking.told() if looking is not None else {}
        return {**pace_of(lines_of(running.run / "ledger.jsonl")), **told}


def saturated(folder: Path, devices: int, rounds: int, viewers: int | None) -> Found:
    """The edge server and devices that give the model back untrained; CPU is of the time from the first to the last look."""
    write_model(folder / "model.safetensors")
    page = () if viewers is None else ("--page", "--page-port", 0)
    with LocalFleet(folder) as fleet:
        settings = {**FASTEST, "fleet.devices": devices, "fleet.channels": min(8, devices)}
        named = ("--initial", folder / "model.safetensors", "--rounds", rounds, "--no-evaluator", "--log-level", "error")
        edge = fleet.edge(*named, *page, settings=settings)
        url = fleet.url(60.0)
        for number in range(devices):
            fleet.device(f"device-{number}", url, "--no-training", "--samples", 70, "--log-level", "error")
        looking = None
        pids = {"edge": edge.pid, "broker": int(fleet.broker_record()["pid"])}
        looks: list[tuple[float, int, Found]] = []
        most_mb, end_s = 0.0, time.monotonic() + LIMIT_S
        while edge.poll() is None:
            if time.monotonic() > end_s:
                raise SystemExit(f"The run has not ended within {LIMIT_S:g} s: {fleet.log('edge')[-500:]}")
            if viewers is not None and "page" not in pids and (serving := page_under(edge.pid)) is not None:
                pids["page"] = serving
            if viewers and looking is None and (address := ADDRESS.search(fleet.log("edge"))):
                looking = Viewers(address.group(), viewers)
            with suppress(OSError):
                applied = (fleet.run / "ledger.jsonl").read_bytes().count(b'"kind":"applied"')
                looks.append((time.monotonic(), applied, {name: cpu_s(pid) for name, pid in pids.items()}))
                most_mb = max(most_mb, rss_mb(pids["page"])) if "page" in pids else 0.0
            time.sleep(LOOK_S)
        if edge.returncode != 0:
            raise SystemExit(f"The edge server ended with exit code {edge.returncode}: {fleet.log('edge')[-500:]}")
        told = looking.told() if looking is not None else {}
        found = pace_of(lines_of(fleet.run / "ledger.jsonl", 1.0))
    busy = [look for look in looks if rounds // 10 < look[1] < rounds]
    (first_s, first, before), (last_s, last, after) = busy[0], busy[-1]
    for name in before:
        used_s = after[name] - before[name]
        found |= {
            f"{name}_cpu_percent": 100 * used_s / (last_s - first_s),
            f"{name}_cpu_ms": 1e3 * used_s / max(1, last - first),
        }
    return {**found, "page_mb": most_mb, **told}


def compare(measure: Measure, cases: dict[str, int | None], times: int, devices: int, rounds: int) -> dict[str, list[Found]]:
    """Every case so many times, one after the other, the next time in the other order."""
    found: dict[str, list[Found]] = {name: [] for name in cases}
    for turn in range(times):
        for name in list(cases)[:: -1 if turn % 2 else 1]:
            with tempfile.TemporaryDirectory() as place:
                found[name].append(measure(Path(place), devices, rounds, cases[name]))
            print(f"{turn + 1}. {name}:", {key: round(value, 2) for key, value in found[name][-1].items()}, flush=True)
    return found


def show(found: dict[str, list[Found]]) -> None:
    """Means with their standard deviations, and the differences of the pairs from the first case."""
    first = next(iter(found))
    for name, runs in found.items():
        for key in runs[0]:
            values = [run[key] for run in runs]
            line = f"{name:26} {key:18} {mean(values):10.2f} ± {stdev(values) if len(values) > 1 else 0.0:.2f}"
            if name != first and key in found[first][0]:
                changes = [100 * (run[key] / base[key] - 1) for run, base in zip(runs, found[first], strict=True) if base[key]]
                if changes:
                    scatter = stdev(changes) if len(changes) > 1 else 0.0
                    line += f"   against {first}: {mean(changes):+.1f} ± {scatter:.1f} %"
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saturated", action="store_true", help="as fast as the edge server can")
    parser.add_argument("--quick", action="store_true", help="small, once")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--viewers", type=int, default=5)
    given = parser.parse_args()
    devices, times = (3, 1) if given.quick else (30, given.pairs)
    watched: dict[str, int | None] = {"no page": None, f"a page, {given.viewers} viewers": given.viewers}
    if given.saturated:
        cases = {"no page": None, "a page, nobody looks": 0, **watched}
        show(compare(saturated, cases, times, devices, 300 if given.quick else 6000))
    else:
        show(compare(paced, watched, times, devices, 30 if given.quick else 300))


if __name__ == "__main__":
    main()
