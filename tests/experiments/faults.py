"""Policies that go wrong for some seeds, small full disks, and other faults for the tests of batches."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FAULTS = {
    "any exception": ("raise ZeroDivisionError('no such luck')", "ZeroDivisionError"),
    "a file of its own": ("open('/nowhere/table.csv')", "table.csv"),
    "it leaves": ("sys.exit(0)", "SystemExit"),
}


def write_faulty_policy(folder: Path, fault: str, seed: int = 1, name: str = "faulty") -> str:
    """A policy that does ``fault`` in the runs of one seed; gives its name."""
    (folder / f"{name}.py").write_text(
        "import os, signal, sys\n"
        "from fedtwin.policies import Policy\n"
        "def score(view, knobs):\n"
        f"    if knobs.seed == {seed}:\n"
        f"        {fault}\n"
        "    return view.samples\n"
        "POLICY = Policy(score, power='optimal')\n",
        encoding="utf-8",
    )
    return f"{name}:POLICY"


@contextmanager
def small_disk(folder: Path, size: str = "256k") -> Iterator[None]:
    """Mounts a small disk at a folder; skips the test where that is not allowed."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Takes all the space that is left on the disk of a folder; gives the file that does."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    return path
