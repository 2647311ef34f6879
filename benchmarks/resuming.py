"""What it costs to resume a long live run, from its last snapshot and by the replay of everything; and what a line costs.

python -m benchmarks.resuming [TASKS] [FOLDER]

The run is made by the edge server's own code without a network, as if every device answered at once: a million tasks take
about twenty minutes of one core. In a folder that is named it stays, and is resumed again without being made again.
"""

import itertools
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from fedtwin.config import build_config
from fedtwin.learning.layout import Weights, layout_of
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import LEDGER_NAME, Ledger, first_lines, read_events, segment_path
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.snapshots import snapshots_in
from fedtwin.live.wire.protocol import Accept, Done, Hello, Reading
from fedtwin.live.wire.tensors import Codec

CODEC = Codec(layout_of({"w": ((4,), False)}))
DEVICES, CHANNELS = 30, 5
OFFER = Accept(gain=1e-9, cpu_hz=2e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01)


def begun(folder: Path, tasks: int) -> LiveRun:
    settings = {"fleet.devices": DEVICES, "fleet.channels": CHANNELS, "run.rounds": tasks, "live.max_change": 100}
    weights = Weights(np.zeros(4, np.float32), np.zeros(0, np.int64))
    run = opening.begin(folder, build_config({}, settings), "main", CODEC.encode(weights))
    for number in range(DEVICES):
        run.commit(run.core.join(f"device-{number}", Hello(samples=50), run.now_s()))
    run.commit(run.core.start(run.now_s()))
    return run


def play(run: LiveRun, tasks: int) -> None:
    """Every task is asked for, handed out and mixed in, as the edge server does it."""
    upload = CODEC.encode(Weights(np.full(4, 0.5, np.float32), np.zeros(0, np.int64)))
    tokens, waiting = (f"{number:032x}" for number in itertools.count()), []
    for _ in range(tasks):
        while (asked := run.core.next_ask(run.now_s())) is not None:
            run.commit(asked)
            if not isinstance(asked, events.Asked):
                continue
            event = run.core.answered(asked, OFFER, next(tokens), run.now_s())
            run.commit(event)
            assert isinstance(event, events.Dispatched)
            waiting.append(event)
        sent = waiting.pop(0)
        assert run.receive(run.core.names[sent.device], _done(sent), upload, run.now_s()) is None


def _done(sent: events.Dispatched) -> Done:
    values = {"compute_s": 0.1, "upload_s": 0.1, "compute_j": 0.1, "upload_j": 0.01, "link_s": 0.1}
    readings = {name: Reading(value=value, source="modelled") for name, value in values.items()}
    fixed = {"samples": 50, "model_bytes": CODEC.size, "cpu_hz": 2e9, "cpu_source": "measured", "power_w": 0.1}
    return Done.model_validate({"token": sent.token, "version": sent.version, **fixed, **readings})


def resume_s(folder: Path) -> float:
    """Of one core: it waits for nothing but the disk."""
    begin = time.process_time()
    opening.resume(folder).close()
    return time.process_time() - begin


def append_us(folder: Path) -> float:
    ledger, event = Ledger(folder / "appended.jsonl", fsync=False), events.Passed(at_s=1.0, round=1)
    begin = time.process_time()
    for _ in range(20_000):
        ledger.append(event)
    ledger.close()
    return 1e6 * (time.process_time() - begin) / 20_000


def make(folder: Path, tasks: int) -> None:
    run, begin = begun(folder, 2 * tasks), time.process_time()
    for part in range(10):
        play(run, tasks // 10)
        made = (part + 1) * (tasks // 10)
        print(f"{made} tasks made, {1e6 * (time.process_time() - begin) / made:.0f} µs each", flush=True)
    run.close()


def measure(folder: Path) -> None:
    segments = [segment_path(folder / LEDGER_NAME, first) for first in first_lines(folder / LEDGER_NAME)]
    size = sum(path.stat().st_size for path in segments)
    kinds = Counter(event.kind for event in read_events(folder / LEDGER_NAME))
    tasks, lines = kinds["applied"], kinds.total()
    print(f"{tasks} tasks in {len(segments)} segments, {lines / tasks:.1f} lines and {size / tasks:.0f} bytes a task")
    snapshots = snapshots_in(folder)
    if snapshots:
        newest = max(int(path.stem.rpartition("-")[2]) for path in snapshots)
        print(f"a snapshot has {snapshots[0].stat().st_size / 1e3:.0f} kB, {lines - newest} lines come after the newest")
    begin = time.perf_counter()
    seconds = resume_s(folder)
    print(f"resumed from a snapshot: {seconds:.2f} s of CPU, {time.perf_counter() - begin:.2f} s by the clock")
    for path in snapshots:
        path.rename(path.with_suffix(".aside"))
    seconds = resume_s(folder)
    for path in snapshots:
        path.with_suffix(".aside").rename(path)
    print(f"resumed by the replay of everything: {seconds:.1f} s, {1e6 * seconds / tasks:.0f} µs a task")
    print(f"memory at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")
    with tempfile.TemporaryDirectory() as place:
        print(f"an append: {append_us(Path(place)):.1f} µs")


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as place:
        folder = Path(sys.argv[2] if len(sys.argv) > 2 else place, "run")
        if not folder.exists():
            make(folder, tasks)
        measure(folder)


if __name__ == "__main__":
    main()
