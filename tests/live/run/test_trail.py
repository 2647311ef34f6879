"""The state of the aggregation is had back from files that the ledger names; no model is written again and again for it."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Upload
from fedtwin.learning.aggregation.held import same_bits
from fedtwin.learning.layout import Weights
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import read_events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.model import LiveModel, Mixed
from fedtwin.live.run.trail import MARK_EVERY, Kept
from tests.learning.aggregation.every_rule import RULES
from tests.live.run.test_live_run import begun, deliver, dispatch, weights

PLAIN = {"learning.average": "none"}
MOMENTUM = {**PLAIN, "learning.aggregation": "tests.live.gathering_rule:RULE"}
FEDBUFF = {**PLAIN, "learning.aggregation": "fedbuff", "learning.buffer_size": 4}
AVERAGED = {"learning.average": "ema"}
AVERAGED_FEDBUFF = {**FEDBUFF, **AVERAGED}
GATHERING = {name: RULES[name] for name in ("change", "ca2fl", "ca2fl, eight bits", "fadas")}


def after(folder: Path, uploads: int, settings: dict[str, Any]) -> LiveRun:
    live = begun(folder, **settings)
    for number in range(uploads):
        assert deliver(live, dispatch(live), weights(np.sin(number), number)) is None
    live.close()
    return live


def applied(folder: Path) -> list[events.Applied]:
    return [event for event in read_events(folder / "ledger.jsonl") if isinstance(event, events.Applied)]


def kinds_of_files(folder: Path) -> Counter[str]:
    return Counter(path.name.partition("-")[0] for path in (folder / "models").iterdir())


def require_the_same(one: LiveRun, other: LiveRun) -> None:
    held = [live.model._rule.hold(live.model._state, live.model.weights.floats) for live in (one, other)]
    assert same_bits(*held) and one.model.encoded == other.model.encoded


def test_a_rule_without_a_state_keeps_nothing(tmp_path: Path) -> None:
    after(tmp_path / "run", 20, PLAIN)
    assert kinds_of_files(tmp_path / "run") == {"model": 4}, "the newest, the one before, version 16, and the run's beginning"
    assert all(event.upload is None and event.state is None for event in applied(tmp_path / "run"))


def test_a_state_that_is_empty_again_needs_no_upload(tmp_path: Path) -> None:
    after(tmp_path / "run", 8, FEDBUFF)
    assert [event.upload is None for event in applied(tmp_path / "run")] == [False, False, False, True] * 2
    assert all(event.state is None for event in applied(tmp_path / "run"))
    assert kinds_of_files(tmp_path / "run")["upload"] == 3, "of the line before the last, which may be lost with the power"


def test_the_state_itself_is_written_once_in_many_uploads(tmp_path: Path) -> None:
    live = after(tmp_path / "run", 43, MOMENTUM)
    written = [event.version for event in applied(tmp_path / "run") if event.state is not None]
    assert written == [17, 34]
    kept = kinds_of_files(tmp_path / "run")
    assert kept["state"] == 2 and kept["upload"] == 9 and kept["model"] < 15
    again = opening.resume(tmp_path / "run")
    require_the_same(again, live)
    again.close()


@pytest.mark.parametrize(
    "settings",
    [MOMENTUM, FEDBUFF, AVERAGED, AVERAGED_FEDBUFF, *({**PLAIN, **rule} for rule in GATHERING.values())],
    ids=["momentum", "fedbuff", "averaged fedasync", "averaged fedbuff", *GATHERING],
)
@pytest.mark.parametrize("uploads", [1, 3, 4, 5, 16, 17, 18])
def test_what_was_gathered_is_had_back_also_if_the_last_line_is_lost(
    tmp_path: Path, settings: dict[str, Any], uploads: int
) -> None:
    expected = after(tmp_path / "one upload less", uploads - 1, settings)
    live = after(tmp_path / "run", uploads, settings)
    again = opening.resume(tmp_path / "run")
    require_the_same(again, live)
    again.close()
    path = tmp_path / "run" / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if b'"kind":"applied"' in line)
    path.write_bytes(b"".join(lines[:last]))
    again = opening.resume(tmp_path / "run")
    require_the_same(again, expected)
    again.close()


def test_a_file_that_is_gone_or_damaged_is_a_sentence(tmp_path: Path) -> None:
    after(tmp_path / "run", 20, MOMENTUM)
    for kind, number in (("state", 17), ("upload", 19)):
        path = tmp_path / "run" / "models" / f"{kind}-{number:012d}.safetensors"
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(
            FedtwinError, match=rf"The {kind} '.*' is damaged: it is not what the ledger says was written; intact"
        ):
            opening.resume(tmp_path / "run")
        path.unlink()
        with pytest.raises(FedtwinError, match=rf"The {kind} '.*' cannot be read: .*, and the state of learning\.aggregation"):
            opening.resume(tmp_path / "run")
        path.write_bytes(good)
    opening.resume(tmp_path / "run").close()


def test_a_rule_that_gives_another_model_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after(tmp_path / "run", 3, MOMENTUM)
    usual = LiveModel._mix

    def another(self: LiveModel, model: Weights, state: Any, upload: Upload, counters: np.ndarray) -> Mixed:
        mixed = usual(self, model, state, upload, counters)
        return mixed._replace(weights=Weights(mixed.weights.floats + 1.0, mixed.weights.counters))

    monkeypatch.setattr(LiveModel, "_mix", another)
    with pytest.raises(FedtwinError, match=r"RULE' makes another model of the uploads that were kept than '.*model-0+3"):
        opening.resume(tmp_path / "run")


def test_what_is_not_for_a_live_fleet_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"learning\.aggregation = 'fedavg' needs run\.mode = 'sync'"):
        begun(tmp_path / "run", **{"learning.aggregation": "fedavg"})
    with pytest.raises(
        FedtwinError, match=r"learning\.aggregation_settings\.speed is not a setting: allowed are momentum, step"
    ):
        begun(tmp_path / "run", **MOMENTUM, **{"learning.aggregation_settings.speed": 1})
    assert not (tmp_path / "run").exists()


GATHERED = events.KeptUpload(file="upload", sha256="", start=0, staleness=0, samples=1.0, round=0)
APPLIED = events.Applied(
    at_s=0.0, token="", device=0, version=1, changed=True, staleness=0, late=False, compute_s=0.0, upload_s=0.0, compute_j=0.0,
    upload_j=0.0, cost=0.0, elapsed_s=0.0, reported_s=0.0, believed=True, sources={}, link_s=0.0, uploaded_bytes=0,
    model_sha256="",
)  # fmt: skip


@pytest.mark.parametrize("every", [1, 4, 17, 40])
def test_going_back_loses_three_times_as_many_versions_as_came_after_the_damage(every: int) -> None:
    """And a few; with so few models that they have room. ``every``: how often the state is whole in one file."""
    kept, most = Kept(), 0
    for version in range(1, 12_001):
        kept.happened(APPLIED.model_copy(update={"version": version, "upload": GATHERED if version % every else None}))
        if version % 977 == 0:
            states = sorted({state.version for state in kept.states})
            for damaged in range(kept.anchors[0].version + 1, version):
                back = max(one for one in states if one <= damaged)
                assert version - back <= 3 * (version - damaged) + 2 * max(every, MARK_EVERY), (version, damaged, back)
        most = max(most, len(kept.marks))
    assert 8 <= most <= 16
