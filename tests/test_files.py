"""What is no file is refused before it is opened: reading a pipe would wait for a writer that never comes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedtwin
from fedtwin.files import plain_file

READING = """
import shutil, sys, fedtwin
from pathlib import Path
from fedtwin.learning.data import load_dataset
from fedtwin.live.run.ledger import read_events
from fedtwin.experiments.batches.journal import read_journal
what, run = Path(sys.argv[1]), Path("run")
asked = {
    "toml": lambda: fedtwin.load_config(what),
    "sweep": lambda: fedtwin.sweep(what),
    "fleet": lambda: fedtwin.load_config(overrides={"fleet.file": str(what)}),
    "data": lambda: load_dataset(str(what)),
    "ledger": lambda: list(read_events(what)),
    "journal": lambda: read_journal(what),
}
for name in ("summary.json", "SHA256SUMS", "devices.parquet", "start.parquet", "rounds.parquet"):
    def ask(name=name):
        folder = Path("copy of " + name)
        shutil.copytree(run, folder)
        (folder / name).unlink()
        (folder / name).symlink_to(what.resolve())
        found = fedtwin.open_run(folder)
        print(found.summary, found.devices, found.start, found.rounds)
    asked[name] = ask
for name, ask in asked.items():
    try:
        ask()
        print("read", name)
    except fedtwin.FedtwinError as error:
        print("told", name, error)
"""


@pytest.mark.parametrize(("name", "kind"), [("pipe.npz", "a pipe"), ("folder.npz", "a folder"), ("device.npz", "a device")])
def test_what_is_no_file_is_a_sentence_and_never_waits(tmp_path: Path, name: str, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "device.npz").symlink_to("/dev/zero")
    fedtwin.simulate({"run.rounds": 5}, out=tmp_path / "run")
    command = [sys.executable, "-c", READING, name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 11 and all(line.startswith("told") for line in lines), done.stdout
    assert sum(f"it is {kind}, not a file" in line for line in lines) >= 9, done.stdout


def test_a_file_and_a_link_to_one_are_plain(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert plain_file(tmp_path / "file").read_text() == plain_file(tmp_path / "link").read_text() == "text"
    with pytest.raises(FileNotFoundError):
        plain_file(tmp_path / "nothing")
