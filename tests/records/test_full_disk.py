"""A disk that is full at any moment: one sentence, nothing half-written, and the run goes on when there is room."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.records import read_rounds
from fedtwin.sim import resume, simulate
from tests.conftest import FEDTWIN

WRITERS: list[tuple[Any, str]] = [
    *((pq, "write_table"), (pq.ParquetWriter, "write_table")),
    *((Path, "write_text"), (Path, "write_bytes")),
]


class Disk:
    """Full from the write number ``room`` on; a write that fails leaves its beginning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.writes, self.room = 0, room
        for owner, name in WRITERS:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.writes += 1
            if self.writes <= self.room:
                return write(*arguments, **more)
            for path in (one for one in arguments if isinstance(one, Path)):
                with path.open("wb") as file:
                    file.write(b"PAR1")
            raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")

        return counted


def test_a_disk_that_fills_up_at_any_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.records.folder.ROWS_PER_PART", 40)
    config = load_config(overrides={"run.rounds": 100, "run.engine": "readable"})
    with monkeypatch.context() as patch:
        disk = Disk(patch, room=10**9)
        simulate(config, out=tmp_path / "whole")
        writes = disk.writes
    assert writes > 8
    for room in range(writes):
        out = tmp_path / str(room)
        with monkeypatch.context() as patch:
            Disk(patch, room)
            with pytest.raises(FedtwinError, match=r"cannot be written.*No space left on device") as caught:
                simulate(config, out=out)
        assert "Detail" not in str(caught.value)
        if not out.exists():
            continue
        assert "--resume" in str(caught.value) and not (out / ".lock").exists()
        if (out / "rounds.parquet").is_file() or list((out / "rounds.parquet").iterdir()):
            assert read_rounds(out).num_rows in (40, 80, 100)
        assert not [path for path in out.rglob(".*") if path.is_file()], "nothing half-written is left"
        resume(out)
        for path in (tmp_path / "whole").iterdir():
            assert (out / path.name).read_bytes() == path.read_bytes(), (room, path.name)
    assert not (tmp_path / "0").exists() and (tmp_path / str(writes - 1)).exists()


def test_a_policys_error_is_told_even_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fails_at_30.py").write_text(
        "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: 1 / (30 - view.round), power='max')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = load_config(overrides={"policy.name": "fails_at_30:POLICY", "run.rounds": 100, "run.engine": "readable"})
    disk = Disk(monkeypatch, room=10**9)

    def fill_the_disk(_: int) -> None:
        disk.room = 0

    with pytest.raises(FedtwinError, match="ZeroDivisionError"):
        simulate(config, out=tmp_path / "run", progress=fill_the_disk)
    assert list((tmp_path / "run" / "rounds.parquet").iterdir()) == []


def test_a_checkpoint_that_does_not_fit_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    def full(_: object, path: Path, *__: object) -> None:
        path.write_bytes(b"\0")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    config = load_config(overrides={"learning.dataset": "digits", "run.rounds": 20, "learning.executor": "serial"})
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.numpy.save_file", full)
        with pytest.raises(FedtwinError, match=r"cannot be written.*No space left on device"):
            simulate(config, out=tmp_path / "run", checkpoint_every_s=0.0)
    assert not [path for path in (tmp_path / "run").rglob(".*") if path.is_file()]
    assert resume(tmp_path / "run").summary.rounds == 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Room for one part of the records, not for two."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
def test_the_command_line_on_a_disk_that_is_really_full(small_disk: Path, tmp_path: Path) -> None:
    def fedtwin(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*FEDTWIN, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)

    out = small_disk / "run"
    settings = ("--rounds", 20_000, "--set", "run.engine=readable")
    done = fedtwin("run", *settings, "--out", out)
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert done.stderr.startswith(f"error: {str(out)!r} cannot be written (No space left on device)")
    assert len(done.stderr.splitlines()) == 1 and f"--resume {out}" in done.stderr
    assert 0 < read_rounds(out).num_rows <= 10_000
    still_full = fedtwin("run", "--resume", out)
    assert still_full.returncode == 2 and "No space left" in still_full.stderr and len(still_full.stderr.splitlines()) == 1
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert fedtwin("run", "--resume", out).returncode == 0
    assert read_rounds(out).num_rows >= 20_000 and (out / "summary.json").exists()
