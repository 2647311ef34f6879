"""A line of the ledger that was changed, dropped, doubled or moved is found when it is read, with its number."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.live.run import events
from fedtwin.live.run.chain import sealed, unsealed
from fedtwin.live.run.ledger import DamageError, Ledger, read_events

EVENTS = [events.Passed(at_s=float(number), round=number) for number in range(6)]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("whole") / "ledger.jsonl"
    ledger = Ledger(path, fsync=False)
    for event in EVENTS:
        ledger.append(event)
    ledger.close()
    assert list(read_events(path)) == EVENTS
    return path.read_bytes().splitlines(keepends=True)


def test_a_line_says_how_it_is_chained(lines: list[bytes]) -> None:
    before = ""
    for line in lines:
        entry = json.loads(line)
        digits = entry.pop("chain")
        event = json.dumps(entry, separators=(",", ":"))
        assert digits == hashlib.sha256(f"{before}{event}".encode()).hexdigest()[:16]
        before = digits


DAMAGE = {
    "changed": ([0, 1, 2, 3, 4, 5], 3, 4),
    "first changed": ([0, 1, 2, 3, 4, 5], 0, 1),
    "last changed": ([0, 1, 2, 3, 4, 5], 5, 6),
    "dropped": ([0, 1, 3, 4, 5], None, 3),
    "first dropped": ([1, 2, 3, 4, 5], None, 1),
    "doubled": ([0, 1, 2, 2, 3, 4, 5], None, 4),
    "moved": ([0, 1, 3, 2, 4, 5], None, 3),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_in_its_line(tmp_path: Path, lines: list[bytes], name: str) -> None:
    order, changed, found = DAMAGE[name]
    written = [lines[number].replace(b'"at_s":', b'"at_s":7') if number == changed else lines[number] for number in order]
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(written))
    read: list[events.Event] = []
    with pytest.raises(DamageError, match=rf"is damaged in line {found}: it is not as it was written"):
        read.extend(read_events(path))  # what comes before it is given


def test_a_line_without_its_digits_among_chained_ones_is_damage(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "ledger.jsonl"
    plain = EVENTS[0].model_dump_json(exclude_none=True).encode() + b"\n"
    path.write_bytes(b"".join([*lines[:2], plain, *lines[3:]]))
    with pytest.raises(DamageError, match="is damaged in line 3: it is not as it was written"):
        list(read_events(path))
    path.write_bytes(b"".join([plain, *lines[1:]]))
    with pytest.raises(DamageError, match="is damaged in line 2: it is chained, and the lines before it are not"):
        list(read_events(path))


@given(
    st.dictionaries(st.text(max_size=5), st.text(), min_size=1, max_size=3),
    st.text("0123456789abcdef", min_size=16, max_size=16),
)
def test_what_is_sealed_is_had_back(event: dict[str, str], before: str) -> None:
    text = json.dumps(event).encode()
    line, digits = sealed(text, before)
    assert unsealed(line) == (text, digits) and line.endswith(b"\n") and json.loads(line) == {**event, "chain": digits}
