"""What thousands of idle devices cost: memory of edge server and broker, and what their telemetry adds to the ledger.

python -m benchmarks.idle [DEVICES] [SECONDS] [POLICY]

All devices are real agents with a connection of their own, in a few processes. One at a time has a task, the others are idle;
every heartbeat of every one says another gain and another CPU frequency than the one before, which is the worst there is: an
agent as it is says what it found when it was asked last, and that is no news.
"""

import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from benchmarks.live_overhead import cpu_s, rss_mb
from fedtwin.live import LocalFleet
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.device.trainers import NoTrainer
from fedtwin.live.device.work import TaskWork
from fedtwin.live.wire.protocol import Telemetry

PROCESSES = 4
JOIN_S = 900.0
SETTINGS = {"fleet.channels": 1, "objective.max_time_s": 100.0, "objective.max_energy_j": 100.0}


def restless(self: TaskWork) -> Telemetry:
    return Telemetry(gain=random.uniform(1e-12, 1e-8), cpu_hz=random.uniform(1e9, 3e9), busy=self.busy)


async def crowd(url: str, first: int, count: int) -> None:
    """Many agents in this process, for ever; they do not all come at once."""
    TaskWork.telemetry = restless  # type: ignore[method-assign]
    agents = []
    for number in range(first, first + count):
        options = AgentOptions(f"device-{number}", [url], NoTrainer(40), radio="emulated", distance_m=150.0)
        agents.append(asyncio.create_task(Agent(options).run()))
        await asyncio.sleep(0.01)
    await asyncio.gather(*agents)


def lines_of(run: Path) -> list[bytes]:
    return [line for path in sorted(run.glob("ledger*.jsonl")) for line in path.read_bytes().splitlines(keepends=True)]


def sizes_of(lines: list[bytes]) -> tuple[Counter[str], Counter[str]]:
    """How many lines of each kind, and their bytes."""
    number: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for line in lines:
        kind = json.loads(line)["kind"]
        number[kind] += 1
        size[kind] += len(line)
    return number, size


def measure(folder: Path, devices: int, seconds: float, policy: str) -> dict[str, float]:
    save_file({"weights": np.zeros(64, np.float32)}, folder / "model.safetensors")
    with LocalFleet(folder) as fleet:
        named = ("--initial", folder / "model.safetensors", "--rounds", 1_000_000, "--no-evaluator", "--policy", policy)
        edge = fleet.edge(*named, "--log-level", "warning", settings={**SETTINGS, "fleet.devices": devices})
        url = fleet.url(120.0)
        for part in range(PROCESSES):
            first = devices * part // PROCESSES
            count = devices * (part + 1) // PROCESSES - first
            fleet.start(f"crowd-{part}", [sys.executable, "-m", "benchmarks.idle", "crowd", url, first, count])
        end = time.monotonic() + JOIN_S
        while not any(b'"kind":"applied"' in line for line in lines_of(fleet.run)):
            assert time.monotonic() < end, fleet.log("edge")[-2000:]
            time.sleep(1.0)
        time.sleep(10.0)
        before, edge_s, begin = len(lines_of(fleet.run)), cpu_s(edge.pid), time.monotonic()
        time.sleep(seconds)
        lines, taken_s = lines_of(fleet.run)[before:], time.monotonic() - begin
        number, size = sizes_of(lines)
        tasks = max(number["applied"], 1)
        broker = fleet.broker_record()["pid"]
        return {
            "edge_mb": rss_mb(edge.pid),
            "broker_mb": rss_mb(broker),
            "edge_cpu_percent": 100 * (cpu_s(edge.pid) - edge_s) / taken_s,
            "tasks_per_s": number["applied"] / taken_s,
            "told_lines": number["told"],
            "told_bytes_a_task": size["told"] / tasks,
            "told_mb_an_hour": 3600e-6 * size["told"] / taken_s,
            "other_bytes_a_task": (sum(size.values()) - size["told"]) / tasks,
        }


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))
    if sys.argv[1:2] == ["crowd"]:
        asyncio.run(crowd(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return
    devices = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    for policy in sys.argv[3:] or ["twin-dpp", "cu-ucb"]:
        with tempfile.TemporaryDirectory() as text:
            found = measure(Path(text), devices, seconds, policy)
        print(devices, policy, {key: round(value, 2) for key, value in found.items()}, flush=True)


if __name__ == "__main__":
    main()
