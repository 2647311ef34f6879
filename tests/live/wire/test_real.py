"""The world as it is, behind the ports."""

import re
from pathlib import Path

import pytest

from fedtwin.live.wire.real import CLOCK, DISK, REAL


def test_a_token_is_another_every_time() -> None:
    tokens = {REAL.chance.token() for _ in range(100)}
    assert len(tokens) == 100 and all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)


def test_the_two_clocks_are_the_systems() -> None:
    assert 0.0 <= CLOCK.monotonic_s() <= CLOCK.monotonic_s()
    assert CLOCK.wall_s() > 1.7e9


def test_a_file_that_is_written_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    for word in (b"one\n", b"two\n"):
        file = DISK.append_to(path)
        assert file.write(word) == len(word)
        file.sync()
        file.close()
    assert DISK.read(path) == b"one\ntwo\n" and DISK.size(path) == 8 and DISK.read_from(path, 4, 2) == b"tw"
    DISK.cut(path, 4)
    assert DISK.read(path) == b"one\n" and DISK.names(tmp_path) == ["ledger"]


def test_what_is_not_there(tmp_path: Path) -> None:
    DISK.remove(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        DISK.read(tmp_path / "nothing")


def test_a_file_in_place_of_another(tmp_path: Path) -> None:
    for data in (b"old", b"new"):
        DISK.write_whole(tmp_path / "file", data)
    assert DISK.read(tmp_path / "file") == b"new" and DISK.names(tmp_path) == ["file"]
    DISK.remove(tmp_path / "file")
    assert DISK.names(tmp_path) == []
