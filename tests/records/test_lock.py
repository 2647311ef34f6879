"""One holder at a time, also while others come and go."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.records.lock import Lock, is_held

HAMMER = """
import os, sys, time
from pathlib import Path
from fedtwin import FedtwinError
from fedtwin.records.lock import Lock
folder, end, taken = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    try:
        lock = Lock(folder / ".lock")
    except FedtwinError:
        continue
    os.close(os.open(folder / "held", os.O_CREAT | os.O_EXCL))  # an error where another holds it too
    os.unlink(folder / "held")
    lock.release()
    taken += 1
print(taken)
"""


def test_a_lock_is_held_once_and_can_be_had_again(tmp_path: Path) -> None:
    first = Lock(tmp_path / ".lock")
    with pytest.raises(FedtwinError, match="is being written by another fedtwin"):
        Lock(tmp_path / ".lock")
    first.release()
    first.release()
    assert not (tmp_path / ".lock").exists()
    Lock(tmp_path / ".lock").release()


def test_the_file_that_the_last_holder_removed_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened before it was removed, locked after: a third has the new one by then."""
    flock, first = fcntl.flock, Lock(tmp_path / ".lock")
    third: list[Lock] = []

    def late(file: Any, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        third.append(Lock(tmp_path / ".lock"))
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(FedtwinError, match="is being written by another fedtwin"):
        Lock(tmp_path / ".lock")
    third[0].release()


def test_a_file_removed_meanwhile_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, first = fcntl.flock, Lock(tmp_path / ".lock")

    def late(file: Any, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    second = Lock(tmp_path / ".lock")
    with pytest.raises(FedtwinError, match="is being written by another fedtwin"):
        Lock(tmp_path / ".lock")
    second.release()


@pytest.mark.slow
def test_processes_that_hammer_it_never_hold_it_together(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HAMMER, str(tmp_path), "3"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    taken = [int(process.communicate()[0] or -1) for process in processes]
    assert all(process.returncode == 0 for process in processes) and sum(taken) > 100, taken


def test_a_lock_is_held_until_its_holder_ends_however_it_does(tmp_path: Path) -> None:
    assert not is_held(tmp_path / ".lock")
    code = "import sys; from pathlib import Path; from fedtwin.records.lock import Lock; "
    code += "held = Lock(Path(sys.argv[1])); print(1, flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "1\n"
        assert is_held(tmp_path / ".lock")
        holder.kill()
    assert (tmp_path / ".lock").exists() and not is_held(tmp_path / ".lock")


def test_who_only_looks_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("a") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.005, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        Lock(tmp_path / ".lock").release()
