"""What the live fleet costs: tasks per second and latency through the whole edge server, beside a bare NATS echo of the same
bytes in the same run; memory with 500 idle devices; an idle agent; the price of fsync. Writes its part of docs/live.md.

    python -m benchmarks.live_overhead [--quick]
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import nats
import numpy as np
from safetensors.numpy import save_file

from fedtwin.live.broker.process import Broker, BrokerOptions

MODEL_VALUES = 250_000
DEVICES = 8
PAGE = Path("docs/live.md")
BEGIN, END = "<!-- measured -->", "<!-- end -->"
CPU_COLUMNS = ("edge_cpu_ms", "broker_cpu_ms", "device_cpu_ms")
FEDTWIN = [sys.executable, "-m", "fedtwin"]
ECHO = """
import asyncio, sys, nats
async def main(url, subject):
    client = await nats.connect(url)
    async def back(message):
        await client.publish(message.reply, message.data)
    await client.subscribe(subject, cb=back)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main(*sys.argv[1:]))
"""


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_model(path: Path) -> None:
    values = np.random.default_rng(0).normal(size=MODEL_VALUES).astype(np.float32)
    save_file({"weights": values}, path)


async def echo(folder: Path, seconds: float, in_flight: int) -> dict[str, float]:
    """The same bytes there and back, nothing else: core NATS, one process per device."""
    broker = Broker.start(folder / "echo", BrokerOptions(folder / "echo" / "store"), die_with_parent=True)
    devices = [
        subprocess.Popen([sys.executable, "-c", ECHO, broker.url, f"echo.{k}"], stdout=subprocess.PIPE) for k in range(DEVICES)
    ]
    try:
        for device in devices:
            assert device.stdout is not None
            device.stdout.readline()
        client = await nats.connect(broker.url, pending_size=64 * 2**20)
        body = os.urandom(4 * MODEL_VALUES)
        taken: list[float] = []

        async def keep_one_in_flight(device: int, until: float) -> None:
            while time.perf_counter() < until:
                before = time.perf_counter()
                await client.request(f"echo.{device}", body, timeout=30)
                taken.append(time.perf_counter() - before)

        async def play(length_s: float) -> float:
            taken.clear()
            begin = time.perf_counter()
            await asyncio.gather(*(keep_one_in_flight(k, begin + length_s) for k in range(in_flight)))
            return len(taken) / (time.perf_counter() - begin)

        await play(1.0)
        rate = await play(seconds)
        await client.close()
        return {"tasks_per_s": rate, "p50_ms": 1e3 * statistics.median(taken)}
    finally:
        for device in devices:
            device.kill()
            device.wait()
        broker.stop()


def edge_run(folder: Path, rounds: int, channels: int, *settings: str) -> dict[str, float]:
    """The whole edge server and eight agents as a user starts them, with trainings that give the model back."""
    write_model(folder / "model.safetensors")
    run = folder / "run"
    command = [*FEDTWIN, "edge", "--out", str(run), "--initial", str(folder / "model.safetensors"), "--rounds", str(rounds)]
    command += ["--log-level", "error", "--set", f"fleet.devices={DEVICES}", "--set", f"fleet.channels={channels}"]
    for setting in settings:
        command += ["--set", setting]
    edge = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = read_url(run)
    devices = [start_device(url, k) for k in range(DEVICES)]
    try:
        broker = json.loads((run / "broker" / "broker.json").read_text(encoding="utf-8"))["pid"]
        groups = {"edge": [edge.pid], "broker": [broker], "device": [device.pid for device in devices]}
        looks: list[tuple[int, dict[str, float]]] = []
        while edge.poll() is None:
            with suppress(OSError):
                applied = (run / "ledger.jsonl").read_bytes().count(b'"kind":"applied"')
                looks.append((applied, {name: sum(map(cpu_s, pids)) for name, pids in groups.items()}))
            time.sleep(0.25)
        measured = read_ledger(run / "ledger.jsonl")
        busy = [look for look in looks if 0 < look[0] < rounds]
        if len(busy) > 1:
            (first, before), (last, after) = busy[0], busy[-1]
            measured |= {f"{name}_cpu_ms": 1e3 * (after[name] - before[name]) / max(1, last - first) for name in groups}
        return measured
    finally:
        for device in devices:
            device.terminate()
            device.wait()


def read_url(run: Path) -> str:
    for _ in range(600):
        with suppress(OSError, ValueError, KeyError):
            return str(json.loads((run / "broker" / "broker.json").read_text(encoding="utf-8"))["url"])
        time.sleep(0.05)
    raise RuntimeError("the edge server did not start")


def start_device(url: str, number: int) -> "subprocess.Popen[bytes]":
    command = [*FEDTWIN, "device", f"device-{number}", "--server", url, "--no-training", "--samples", "70"]
    return subprocess.Popen([*command, "--log-level", "error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read_ledger(path: Path) -> dict[str, float]:
    """Rate between the first tenth and the end; latency from the question to the model on disk."""
    asked: dict[int, float] = {}
    begun: dict[str, float] = {}
    ends, taken = [], []
    for line in path.open(encoding="utf-8"):
        event = json.loads(line)
        if event["kind"] == "asked":
            asked[event["device"]] = event["at_s"]
        elif event["kind"] == "dispatched":
            begun[event["token"]] = asked[event["device"]]
        elif event["kind"] == "applied":
            ends.append(event["at_s"])
            taken.append(event["at_s"] - begun[event["token"]])
    first = len(ends) // 10
    taken = sorted(taken[first:])
    return {
        "tasks_per_s": (len(ends) - first - 1) / (ends[-1] - ends[first]),
        "p50_ms": 1e3 * statistics.median(taken),
        "p99_ms": 1e3 * taken[int(0.99 * len(taken))],
    }


def idle_agent(folder: Path) -> float:
    """Resident memory of an agent without PyTorch that has joined and waits."""
    broker = Broker.start(folder / "idle", BrokerOptions(folder / "idle" / "store"), die_with_parent=True)
    write_model(folder / "idle.safetensors")
    command = [*FEDTWIN, "edge", "--out", str(folder / "idle-run"), "--initial", str(folder / "idle.safetensors")]
    edge = subprocess.Popen([*command, "--server", broker.url, "--log-level", "error"], stdout=subprocess.DEVNULL)
    device = start_device(broker.url, 0)
    try:
        time.sleep(6.0)
        return rss_mb(device.pid)
    finally:
        for process in (device, edge):
            process.terminate()
            process.wait()
        broker.stop()


async def many_idle(folder: Path, count: int) -> dict[str, float]:
    """Edge server and broker while ``count`` devices are connected, beat, and are asked nothing."""
    from fedtwin.live.device.agent import Agent, AgentOptions
    from fedtwin.live.device.trainers import NoTrainer

    write_model(folder / "many.safetensors")
    command = [*FEDTWIN, "edge", "--out", str(folder / "many"), "--initial", str(folder / "many.safetensors")]
    command += ["--set", f"fleet.devices={count + 1}", "--log-level", "error"]
    edge = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = read_url(folder / "many")
    agents = [Agent(AgentOptions(f"device-{k}", [url], NoTrainer(70))) for k in range(count)]
    tasks = [asyncio.create_task(agent.run()) for agent in agents]
    try:
        joined = 0
        for _ in range(300):
            await asyncio.sleep(0.2)
            joined = (folder / "many" / "ledger.jsonl").read_text(encoding="utf-8").count('"kind":"joined"')
            if joined == count:
                break
        await asyncio.sleep(10.0)
        broker = json.loads((folder / "many" / "broker" / "broker.json").read_text(encoding="utf-8"))
        before = cpu_s(edge.pid)
        await asyncio.sleep(5.0)
        return {
            "joined": joined,
            "edge_mb": rss_mb(edge.pid),
            "broker_mb": rss_mb(broker["pid"]),
            "edge_cpu_percent": 100 * (cpu_s(edge.pid) - before) / 5.0,
        }
    finally:
        for agent in agents:
            agent.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        edge.terminate()
        edge.wait()


def write_page(found: dict[str, dict[str, float]]) -> None:
    """The table in docs/live.md."""
    rows = ["| | tasks/s | p50 ms | p99 ms | CPU per task, ms: edge, broker, devices |", "|---|---|---|---|---|"]
    for name, numbers in found.items():
        if "tasks_per_s" in numbers:
            p99 = f"{numbers['p99_ms']:.1f}" if "p99_ms" in numbers else ""
            cpu = ", ".join(f"{numbers[key]:.1f}" for key in CPU_COLUMNS if key in numbers)
            rows.append(f"| {name} | {numbers['tasks_per_s']:.0f} | {numbers['p50_ms']:.1f} | {p99} | {cpu} |")
    echo, edge, many = (found[name] for name in ("echo, 8 in flight", "edge, 8 in flight", "500 idle devices"))
    alone = found["edge, 1 in flight"]["p50_ms"] - found["echo, 1 in flight"]["p50_ms"]
    text = [
        f"By `make bench-live` ({os.cpu_count()} cores, everything on one machine): a model of 1 MB, eight devices as",
        "processes of their own that give the model back untrained; every upload through the broker's disk, all checks, the",
        "mixing, the model file and the ledger. The echo sends the same bytes there and back by bare NATS, and nothing else.",
        "Latency is from the question to the new model on disk.",
        "",
        *rows,
        "",
        f"The whole edge server does {edge['tasks_per_s'] / echo['tasks_per_s']:.2f} times the tasks of the bare echo; a",
        f"task alone takes {alone:.1f} ms longer than an echo. With {many['joined']:.0f} devices connected and idle, edge",
        f"server and broker take {many['edge_mb']:.0f} + {many['broker_mb']:.0f} MB, and the edge server",
        f"{many['edge_cpu_percent']:.0f} % of a core. An idle agent without PyTorch takes {found['idle agent']['mb']:.0f} MB.",
    ]
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{chr(10).join(text)}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    quick = "--quick" in sys.argv
    rounds, seconds = (800, 3.0) if quick else (3000, 8.0)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as text:
        root = Path(text)

        def part(name: str) -> Path:
            (root / name).mkdir()
            return root / name

        found["echo, 8 in flight"] = asyncio.run(echo(part("a"), seconds, 8))
        found["edge, 8 in flight"] = edge_run(part("b"), rounds, 8)
        found["echo again, 8 in flight"] = asyncio.run(echo(part("c"), seconds, 8))
        found["echo, 1 in flight"] = asyncio.run(echo(part("d"), seconds / 2, 1))
        found["edge, 1 in flight"] = edge_run(part("e"), rounds // 4, 1)
        if not quick:
            found["edge with fsync, 8 in flight"] = edge_run(part("f"), rounds // 4, 8, "live.fsync=true")
            found["500 idle devices"] = asyncio.run(many_idle(part("g"), 500))
        found["idle agent"] = {"mb": idle_agent(part("h"))}
    for name, numbers in found.items():
        print(f"{name:32}", {key: round(value, 2) for key, value in numbers.items()})
    if not quick:
        write_page(found)
    ratio = found["edge, 8 in flight"]["tasks_per_s"] / found["echo, 8 in flight"]["tasks_per_s"]
    added = found["edge, 1 in flight"]["p50_ms"] - found["echo, 1 in flight"]["p50_ms"]
    loaded = found["edge, 8 in flight"]["p50_ms"] - found["echo, 8 in flight"]["p50_ms"]
    print(f"ratio {ratio:.2f}, added p50 {added:.1f} ms with one in flight, {loaded:.1f} ms with eight")


if __name__ == "__main__":
    main()
