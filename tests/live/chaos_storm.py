"""A fleet of real processes, its edge server, standby, broker and devices killed, paused, robbed of their stores and disks.

python -m tests.live.chaos_storm SEED KILLS FOLDER
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from fedtwin import cli
from fedtwin.live import LocalFleet
from fedtwin.live.run.events import Applied, Dispatched, Refused
from fedtwin.live.run.ledger import LEDGER_NAME, LedgerReader
from fedtwin.processes import runs_with
from tests.live import adding_device
from tests.live.chaos import ENTRIES, SETTINGS, check_stopped, uploaded_in
from tests.live.chaos_disks import SmallDisk
from tests.live.chaos_plan import Fault, Step, counted, schedule
from tests.live.nursery import Forked
from tests.live.plant import until

DEVICES = 8
EDGES = ("edge-a", "edge-b")
EDGE_OPTIONS = ("--standby", "--no-evaluator", "--grace-s", 3, "--log-format", "json")
PROGRESS_S = 120.0
"""So long after the faults of a step have ended uploads of new tasks are mixed in, at the latest."""
TRAINING_S = 0.3
SERVING = '"message": "serving"'
KILLED, CANNOT_GO_ON = -9, 2
FULL = ("No space left on device", "an earlier line could not be finished")


class Storm:
    """The processes, what was done to them, and what the ledger says of it so far."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.folder, self.seed, self._say = folder, seed, say
        self.disks = {"edge": SmallDisk(folder / "disk", 600)}
        self.run = folder / "disk" / "run"
        self.local = LocalFleet(folder, run=self.run, stop_s=0.0)
        self.processes: dict[str, Forked] = {}
        self.done: Counter[tuple[str, str]] = Counter()
        self.starts: Counter[str] = Counter()
        self.past: list[str] = []
        self.last_words: list[str] = []
        """Of who ended, and was not killed."""
        self.slowest_s = 0.0
        self.at_risk: set[str] = set()
        """Tokens whose upload may have lain in a store that was emptied."""
        self._began_at = time.monotonic()
        self._stopped: list[tuple[float, int]] = []
        """Who is paused, and until when."""
        self._log_place: dict[str, int] = {}
        self._settings = {
            "fleet.devices": DEVICES,
            "fleet.channels": DEVICES - 2,
            **SETTINGS,
            "live.back_off_s": 0.2,
        }
        self._sent: dict[str, int] = {}
        self._accounted: set[str] = set()
        self._reader = LedgerReader(self.run / LEDGER_NAME)

    def begin(self) -> None:
        """The run is begun and stopped once, so that the broker's store is on a disk of its own from its first upload on."""
        model = self.folder / "model.safetensors"
        save_file({"marks": np.zeros(ENTRIES, np.float32)}, model)
        named = ("--initial", model, "--rounds", 10_000_000, "--no-evaluator", "--log-format", "json")
        self.local.edge(*named, settings=self._settings)
        self.url = self.local.url(PROGRESS_S)
        self.until(lambda: "serving" in self.local.log("edge"), "serving")
        first = self.local.processes["edge"]
        first.terminate()
        assert first.wait(PROGRESS_S) == 0, self.local.log("edge")
        store = self.run / "broker" / "store"
        shutil.rmtree(store)
        self.disks["broker"] = SmallDisk(store, 100)
        for name in (*EDGES, *(f"device-{number}" for number in range(DEVICES))):
            self._start(name)

    def _start(self, name: str) -> None:
        log = self.folder / f"{name}.log"
        self.starts[name] += 1
        self._log_place[name] = log.stat().st_size if log.exists() else 0
        main: Callable[[], None] = cli.main if name in EDGES else adding_device.main
        words: tuple[object, ...] = ("device", name, self.url, "main", TRAINING_S)
        if name in EDGES:
            words = ("fedtwin", "edge", "--state", self.run, *EDGE_OPTIONS)
        self.processes[name] = Forked(main, words, self.folder / f"{name}.out", log)

    # Who is who

    def log_of_now(self, name: str) -> str:
        """What a process has said since it was started last."""
        with (self.folder / f"{name}.log").open("rb") as file:
            file.seek(self._log_place[name])
            return file.read().decode(errors="replace")

    def alive(self, name: str) -> bool:
        return self.processes[name].poll() is None

    def serving(self) -> str:
        """The edge server that serves, or began to wait first where none does yet."""
        return min(EDGES, key=lambda name: (not self.alive(name), SERVING not in self.log_of_now(name)))

    def chosen(self, whom: str) -> str:
        """A process of that kind; of devices the one that was spared longest."""
        if whom == "device":
            return min((f"device-{number}" for number in range(DEVICES)), key=self.starts.__getitem__)
        return self.serving() if whom == "edge" else next(name for name in EDGES if name != self.serving())

    def broker_pid(self) -> int | None:
        pid = self.local.broker_record().get("pid")
        return int(pid) if pid and runs_with(int(pid), str(self.run / "broker" / "nats.conf")) else None

    def pid_of(self, whom: str) -> int:
        """Of one that lives: who had ended is started first, and a broker is started by its edge server."""
        if whom == "broker":
            return int(self.until(lambda: self._revived() and self._woken() and self.broker_pid(), "the broker runs"))
        name = self.chosen(whom)
        self._revived()
        return self.processes[name].pid

    def _revived(self) -> bool:
        """As a service manager does it."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                if process.returncode != KILLED:
                    self.last_words.append(f"{name} ended with {process.returncode}: {self.local.last_words(name)}")
                self._start(name)
        return True

    # What is done to them

    def play(self, steps: list[Step]) -> None:
        self.wait_for_uploads("the beginning")
        for number, step in enumerate(steps):
            self.past.append(f"{time.monotonic() - self._began_at:7.1f} s  {number:4}: {step}")
            self._say(self.past[-1])
            try:
                for fault in step.faults:
                    self._do(fault)
                    time.sleep(fault.then_s)
            finally:
                for due, _ in sorted(self._stopped):
                    time.sleep(max(due - time.monotonic(), 0.0))
                    self._woken()
            self._revived()
            if not step.rushed:
                self.wait_for_uploads(str(step))

    def _woken(self) -> bool:
        """Whose pause is over; also while a step waits for a broker that only a paused edge server would start."""
        now = time.monotonic()
        for _, pid in [one for one in self._stopped if one[0] <= now]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = [one for one in self._stopped if one[0] > now]
        return True

    def _do(self, fault: Fault) -> None:
        self.done[fault.what, fault.whom] += 1
        match fault.what:
            case "kill":
                self._kill(fault.whom)
            case "pause":
                pid = self.pid_of(fault.whom)
                os.kill(pid, signal.SIGSTOP)
                self._stopped.append((time.monotonic() + fault.lasts_s, pid))
            case "empty store":
                self._empty_the_store()
            case "full disk":
                self.disks[fault.whom].fill()
                time.sleep(fault.lasts_s)
                self.disks[fault.whom].free()

    def _kill(self, whom: str) -> None:
        pid = self.pid_of(whom)
        os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            if process.pid == pid:
                process.wait()

    def _empty_the_store(self) -> None:
        """The broker is gone, and nobody starts it again before its store is empty. What lay there is lost, no more."""
        pid = self.pid_of("broker")
        edges = [self.processes[name].pid for name in EDGES if self.alive(name)]
        for edge in edges:
            os.kill(edge, signal.SIGSTOP)
        try:
            os.kill(pid, signal.SIGKILL)
            self.until(lambda: not runs_with(pid, str(self.run / "broker" / "nats.conf")), "the end of the broker")
            for path in (self.run / "broker" / "store").iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self._read_on()
            self.at_risk |= self._sent.keys() - self._accounted
        finally:
            for edge in edges:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(edge, signal.SIGCONT)

    # What comes of it

    def _read_on(self) -> list[str]:
        """Tokens that were mixed in since the last look."""
        mixed = []
        for event in self._reader.read():
            if isinstance(event, Dispatched):
                self._sent[event.token] = len(self._sent)
            elif isinstance(event, Applied):
                mixed.append(event.token)
                self._accounted.add(event.token)
            elif isinstance(event, Refused) and event.token is not None:
                self._accounted.add(event.token)
        return mixed

    def wait_for_uploads(self, after: str) -> None:
        """Uploads of tasks that are handed out from now on."""
        begin = time.monotonic()
        self._read_on()
        before = len(self._sent)

        def looked() -> bool:
            self._revived()
            return any(self._sent[token] >= before for token in self._read_on())

        self.until(looked, f"uploads after {after}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin)

    def finish(self) -> dict[str, int]:
        """Devices end first, and what they had uploaded is mixed in; then the edge servers. All promises are checked."""
        for name, process in self.processes.items():
            if name not in EDGES:
                process.kill()
                process.wait()
        uploaded = uploaded_in(self.folder)

        def lost() -> set[str]:
            self._read_on()
            return uploaded - self._accounted - self.at_risk

        self.until(lambda: not lost(), "every upload that was acknowledged is mixed in or refused")
        standby = self.chosen("standby")
        self.until(lambda: "standing by" in self.log_of_now(standby), "standing by")
        for name in sorted(EDGES, key=lambda name: name != standby):
            self.processes[name].terminate()
            assert self.processes[name].wait(PROGRESS_S) == 0, self.log_of_now(name)
        counts = check_stopped(self.run, uploaded - self.at_risk)
        full = {words for words in self.last_words if f"with {CANNOT_GO_ON}: " in words and any(why in words for why in FULL)}
        others = set(self.last_words) - full
        assert not others, f"they ended by themselves, and their disk was not full: {others}; {self.story()}"
        return counts

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        try:
            return until(condition, what, PROGRESS_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def story(self) -> str:
        """What was done so far, and what the edge servers said last and are waiting for."""
        words = {name: self.log_of_now(name)[-2000:] for name in EDGES}
        for asked in (signal.SIGUSR1, signal.SIGUSR2):
            for name in EDGES:
                self.processes[name].send_signal(asked)
            time.sleep(1.0)
        words |= {f"{name} waits for": self.log_of_now(name)[-20_000:] for name in EDGES}
        words["broker"] = broker_log.read_text()[-4000:] if (broker_log := self.run / "broker" / "nats.log").exists() else ""
        return "\n".join([f"seed {self.seed}", *self.past[-40:], *(f"{name}: {text}" for name, text in words.items())])

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.local.stop()
        for disk in reversed(self.disks.values()):
            disk.unmount()


def stormed(folder: Path, seed: int, kills: int, say: Callable[[str], None] = lambda _: None) -> tuple[Storm, dict[str, int]]:
    """A schedule played to its end, and what the ledger counts; raises, with all that was done, where a promise is broken."""
    steps = schedule(seed, kills)
    storm = Storm(folder, seed, say)
    try:
        storm.begin()
        storm.play(steps)
        counts = storm.finish()
    finally:
        storm.close()
    assert {key: storm.done[key] for key in counted(steps)} == counted(steps)
    return storm, counts


def main() -> None:
    seed, kills, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    begun = time.monotonic()
    storm, counts = stormed(folder, seed, kills, lambda line: print(line, flush=True))
    done = {f"{what} {whom}": number for (what, whom), number in sorted(storm.done.items())}
    print(
        done, counts, f"{len(storm.last_words)} ended by a full disk, {len(storm.at_risk)} tasks open when a store was emptied"
    )
    print(f"{len(storm.past)} steps, {time.monotonic() - begun:.0f} s, slowest resumption {storm.slowest_s:.1f} s")


if __name__ == "__main__":
    main()
