"""One thing in a run's folder is damaged, anything: what is read, resumed or repaired is then what it was, up to some line, or
one sentence. Never a traceback, never other numbers.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedtwin import open_run
from fedtwin.errors import FedtwinError
from fedtwin.live.run import events, opening
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import first_lines, read_events, segment_path
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.model import digest_of
from fedtwin.live.run.state import State
from fedtwin.live.run.tables import write_records
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.live.run.test_round import SYNC, opened
from tests.live.run.test_salvage import require_rows_of
from tests.live.run.test_trail import MOMENTUM

KINDS = ["async", "async finished", "momentum", "sync", "sync finished"]
FEW, MANY = 6, 300


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder of every kind, with the tables it would end with in another."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)
        for kind in KINDS:
            live = begun(root / kind, **(SYNC if "sync" in kind.split() else MOMENTUM if kind == "momentum" else {}))
            for number in range(4 if live.core.sync else 14):
                for sent in opened(live) if live.core.sync else [dispatch(live)]:
                    assert deliver(live, sent, weights(np.sin(number + sent.device), number)) is None
                if live.core.sync:
                    assert live.close_round()
            if "finished" in kind:
                live.commit(events.Stopped(at_s=live.now_s(), finished=True))
                write_records(root / kind, live.core, live.model)
            elif live.core.sync:
                assert deliver(live, opened(live)[0], weights(1.0)) is None
            live.close()
            if "finished" not in kind:
                ended(shutil.copytree(root / kind, root / f"{kind}, ended"))
        yield root


def ended(folder: Path) -> dict[str, Any]:
    live = opening.resume(folder)
    try:
        if not live.core.finished:
            live.commit(events.Stopped(at_s=live.now_s(), finished=True))
        return write_records(folder, live.core, live.model)
    finally:
        live.close()


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))] if data else data


def flip(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(max(len(data), 1))
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :] if data else b"x"


def lines_changed(data: bytes, chance: random.Random) -> bytes:
    """One is dropped, doubled, or changes places with another; or some at the end are gone."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return b"\n"
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    how = chance.choice(["dropped", "doubled", "swapped", "ended"])
    if how == "swapped":
        lines[one], lines[other] = lines[other], lines[one]
    changed = {"dropped": lines[:one] + lines[one + 1 :], "doubled": [*lines[: one + 1], *lines[one:]], "ended": lines[:one]}
    return b"".join(changed.get(how, lines))


BYTES: list[Callable[[bytes, random.Random], bytes]] = [cut, flip, lines_changed, lambda _data, _chance: b""]


def damage(folder: Path, chance: random.Random) -> str:
    """Of any file, and of the ledger more often."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    ledger = sorted(folder.glob("ledger*.jsonl"))
    path = chance.choice(ledger if chance.random() < 0.5 else files)
    how = chance.choice(["gone", "folder", *[str(number) for number in range(len(BYTES))] * 2])
    if how in ("gone", "folder"):
        path.unlink()
        if how == "folder":
            path.mkdir()
    else:
        path.write_bytes(BYTES[int(how)](path.read_bytes(), chance))
    return f"{path.relative_to(folder)}: {how}"


def ledger_of(folder: Path) -> bytes:
    """To its last whole line."""
    segments = [segment_path(folder / "ledger.jsonl", first) for first in first_lines(folder / "ledger.jsonl")]
    data = b"".join(path.read_bytes() if path.is_file() else b"a folder\n" for path in segments)
    return data[: data.rfind(b"\n") + 1]


def replayed(run: LiveRun, happened: list[Event]) -> dict[str, Any]:
    state = State(run.config)
    for event in happened:
        state.apply(event)
    return state.snapshot()


def require_the_past(live: LiveRun, folder: Path, happened: list[Event], *, all_but_one: bool) -> int:
    """The run is what it was after so many lines, which this gives; ``all_but_one``: no more than one upload is gone."""
    segments = [segment_path(folder / "ledger.jsonl", first) for first in first_lines(folder / "ledger.jsonl")]
    own: list[dict[str, Any]] = []
    for path in segments[-2:]:
        with suppress(OSError, ValueError):  # the one before the last may be what was damaged
            own += [json.loads(line) for line in path.read_bytes().splitlines()[-3:]]
    added: list[Event] = []
    while own and own[-1]["kind"] in ("resumed", "repaired") and len(added) < 2:
        line = own.pop()
        line.pop("chain")
        added.insert(0, events.EVENT.validate_python(line))
    count = live._kept.lines - len(added)
    assert live.core.state.snapshot() == replayed(live, [*happened[:count], *added])
    written = [event for event in happened[:count] if isinstance(event, events.Began | events.Applied | events.Closed)]
    digests = [event.model_sha256 for event in written if event.model_sha256 is not None]
    assert digest_of(live.model.encoded) == digests[-1]
    if all_but_one:
        gone = happened[count:]
        assert sum(isinstance(event, events.Applied) for event in gone) <= 1
        assert not any(isinstance(event, events.Stopped) and event.finished for event in gone)
    return count


def require_views(folder: Path, whole: Path, happened: list[Event]) -> None:
    """Rows of a finished run are in files, of any other they follow from the events."""
    run = None
    for look in ("open", "twin", "rounds", "tasks", "summary", "weights"):
        try:
            run = run or open_run(folder)
            found: Any = run.twin() if look == "twin" else getattr(run, look, None)
            if look in ("rounds", "tasks") and run.finished:
                assert found.equals(pq.read_table(whole / f"{look}.parquet"))
        except FedtwinError:
            continue
    if run is not None and not run.finished:
        try:
            seen = list(read_events(folder / "ledger.jsonl"))
        except FedtwinError:
            return
        assert seen == happened[: len(seen)]


def require_never_silent(root: Path, kind: str, seed: int, place: Path) -> None:
    chance = random.Random(f"{kind} {seed}")
    whole = root / (kind if "finished" in kind else f"{kind}, ended")
    happened = list(read_events(root / kind / "ledger.jsonl"))
    damaged, folder = place / "damaged", place / "run"
    shutil.copytree(root / kind, damaged)
    what = damage(damaged, chance)
    for repair in (False, True):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(damaged, folder)
        try:
            require_views(folder, whole, happened)
            try:
                live = opening.resume(folder, repair=repair)
            except FedtwinError:
                continue
            count = require_the_past(live, folder, happened, all_but_one=not repair)
            live.close()
            summary = ended(folder)
            if count == len(happened):
                require_rows_of(folder, whole)
            if not repair:
                is_whole = ledger_of(root / kind).startswith(ledger_of(damaged))
                assert is_whole == ("incomplete" not in summary), summary.get("incomplete")
            require_views(folder, folder, happened)
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}, {what}, {repair=}: {error!r}") from error


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_never_silent_and_never_a_traceback(runs: Path, tmp_path: Path, kind: str) -> None:
    for seed in range(FEW):
        require_never_silent(runs, kind, seed, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_never_silent_many_times(runs: Path, tmp_path: Path, kind: str) -> None:
    for seed in range(FEW, MANY):
        require_never_silent(runs, kind, seed, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))
