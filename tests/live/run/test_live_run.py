"""An upload is mixed in exactly once or never, wherever the edge server is killed; FedBuff's buffer survives too."""

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.layout import Weights, layout_of
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import Ledger, read_events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import write_records
from fedtwin.live.wire.protocol import Accept, Done, Hello, Reading
from fedtwin.live.wire.real import SystemClock
from fedtwin.live.wire.settings import shared_settings
from fedtwin.live.wire.tensors import Codec
from fedtwin.policies import power_rule

LAYOUT = layout_of({"w": ((4,), False), "steps": ((), True)})
CODEC = Codec(LAYOUT)
TOKENS = (f"{number:032x}" for number in itertools.count(1))


class KilledError(BaseException):
    """The process ends here."""


def config_of(**more: object) -> Config:
    fixed = {"fleet.devices": 3, "fleet.channels": 3, "run.rounds": 50, "live.max_change": 100}
    averaged = {"learning.average": "ema", "learning.mixing": 0.5, "learning.staleness": "constant"}
    return build_config({}, {**fixed, **averaged, **more})


def weights(value: float, steps: int = 0) -> Weights:
    return Weights(np.full(4, value, np.float32), np.array([steps], np.int64))


def begun(folder: Path, **more: object) -> LiveRun:
    live = opening.begin(folder, config_of(**more), "main", CODEC.encode(weights(0.0)))
    for name in ("a", "b", "c"):
        live.commit(live.core.join(name, Hello(samples=50), live.now_s()))
    live.commit(live.core.start(live.now_s()))
    return live


def next_question(live: LiveRun) -> events.Event | None:
    """What is next of an asynchronous run, when its round is open."""
    event = live.core.next_ask(live.now_s())
    if isinstance(event, events.Opened) and not live.core.sync:
        live.commit(event)
        event = live.core.next_ask(live.now_s())
    return event


def dispatch(live: LiveRun) -> events.Dispatched:
    asked = next_question(live)
    assert isinstance(asked, events.Asked)
    return take(live, asked)


def take(live: LiveRun, asked: events.Asked) -> events.Dispatched:
    """The device accepts."""
    live.commit(asked)
    offer = Accept(gain=1e-9, cpu_hz=2e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01)
    event = live.core.answered(asked, offer, next(TOKENS), live.now_s())
    assert isinstance(event, events.Dispatched)
    live.commit(event)
    return event


def done_of(sent: events.Dispatched) -> Done:
    def modelled(value: float) -> Reading:
        return Reading(value=value, source="modelled")

    return Done(
        token=sent.token, version=sent.version, samples=50, model_bytes=CODEC.size, cpu_hz=2e9, cpu_source="measured",
        power_w=0.1, compute_s=modelled(0.1), upload_s=modelled(0.1), compute_j=modelled(0.1), upload_j=modelled(0.01),
        link_s=modelled(0.1),
    )  # fmt: skip


def deliver(live: LiveRun, sent: events.Dispatched, upload: Weights) -> str | None:
    return live.receive(live.core.names[sent.device], done_of(sent), CODEC.encode(upload), live.now_s())


def applied(folder: Path) -> list[str]:
    return [event.token for event in read_events(folder / "ledger.jsonl") if isinstance(event, events.Applied)]


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, when: str) -> Iterator[None]:
    """The server dies while it writes a file, or just before or after the line of the ledger."""
    usual_append = Ledger.append

    def killed_append(self: Ledger, event: events.Event) -> None:
        if when == "after-line":
            usual_append(self, event)
        raise KilledError

    def killed_save(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        if when == "file":
            patch.setattr("fedtwin.live.wire.real.write_whole", killed_save)
        else:
            patch.setattr(Ledger, "append", killed_append)
        with pytest.raises(KilledError):
            yield


@pytest.mark.parametrize("aggregation", ["fedasync", "fedbuff"])
@pytest.mark.parametrize("when", ["file", "before-line", "after-line"])
def test_killed_at_any_point_an_upload_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, aggregation: str
) -> None:
    folder = tmp_path / "run"
    live = begun(folder, **{"learning.aggregation": aggregation, "learning.buffer_size": 2})
    first, second = dispatch(live), dispatch(live)
    assert deliver(live, first, weights(1.0, 3)) is None
    with killed(monkeypatch, when):
        deliver(live, second, weights(2.0, 1))
    live._lock.release()

    again = opening.resume(folder)
    outcome = deliver(again, second, weights(2.0, 1))
    assert (outcome is None) == (when != "after-line")
    assert outcome is None or outcome.startswith("duplicate")
    assert applied(folder) == [first.token, second.token]
    assert again.core.version == 2
    expected = 0.5 * 0.5 * 1.0 + 0.5 * 2.0 if aggregation == "fedasync" else 0.5 * (1.0 + 2.0) / 2
    np.testing.assert_allclose(again.model.weights.floats, expected)
    assert again.model.weights.counters.tolist() == [3]
    assert not list((folder / "models").glob(".*"))
    again.close()


def test_a_torn_line_never_happened_and_is_done_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    live = begun(folder)
    sent = dispatch(live)
    assert deliver(live, sent, weights(1.0)) is None
    live.close()
    path = folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    again = opening.resume(folder)
    assert again.core.version == 0
    assert deliver(again, sent, weights(1.0)) is None
    assert again.core.version == 1
    np.testing.assert_allclose(again.model.weights.floats, 0.5)
    again.close()


def test_late_uploads_by_rule(tmp_path: Path) -> None:
    for rule, expected in (("mix", None), ("refuse", "late: the task had been given up")):
        live = begun(tmp_path / rule, **{"live.late": rule})
        sent = dispatch(live)
        live.commit(live.core.give_up(live.core.open[sent.token], live.now_s(), "the deadline has passed", "offline"))
        assert deliver(live, sent, weights(1.0)) == expected
        assert (deliver(live, sent, weights(1.0)) or "").startswith("duplicate" if expected is None else "late")
        assert live.core.version == (1 if expected is None else 0)
        live.close()


def test_stale_uploads_are_refused(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"live.max_staleness": 1})
    old, *fresh = dispatch(live), dispatch(live), dispatch(live)
    for sent in fresh:
        assert deliver(live, sent, weights(1.0)) is None
    assert (deliver(live, old, weights(1.0)) or "").startswith("stale")
    assert old.token not in live.core.open
    live.close()


def test_one_process_at_a_time_and_the_same_settings(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    with pytest.raises(FedtwinError, match="another fedtwin"):
        opening.resume(tmp_path / "run")
    live.close()
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("rounds = 50", "rounds = 51"), encoding="utf-8")
    with pytest.raises(FedtwinError, match=r"config\.toml, or a file or code it names, has changed"):
        opening.resume(tmp_path / "run")


def test_nothing_follows_a_line_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", fsync=False)

    def full(file: int, data: bytes) -> int:  # noqa: ARG001
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(FedtwinError, match="No space left on device"):
            ledger.append(events.Passed(at_s=1.0, round=1))
    with pytest.raises(FedtwinError, match="could not be finished"):
        ledger.append(events.Passed(at_s=2.0, round=2))
    ledger.close()


@pytest.mark.parametrize("rule", ["fedasync", "fedbuff"])
def test_an_upload_whose_model_could_not_be_written_has_not_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """What goes out meanwhile is the model of the ledger, and the upload counts once when it comes again."""
    more = {"learning.aggregation": rule} | ({"learning.buffer_size": 1} if rule == "fedbuff" else {})
    live = begun(tmp_path / "run", **more)
    sent, before, version = dispatch(live), live.model.encoded, live.core.version

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedtwin.live.wire.real.write_whole", full)
        with pytest.raises(FedtwinError, match=r"cannot be written to .*No space left on device"):
            deliver(live, sent, weights(1.0, 1))
    assert live.failure is not None, "the run ends"
    assert (live.model.encoded, live.core.version) == (before, version)
    assert deliver(live, sent, weights(1.0, 1)) is None
    mixed = live.model.weights.floats
    live.close()
    once = begun(tmp_path / "once", **more)
    assert deliver(once, dispatch(once), weights(1.0, 1)) is None
    np.testing.assert_array_equal(mixed, once.model.weights.floats)
    once.close()


def test_a_run_whose_ledger_was_removed_ends_with_the_newest_model_it_has_a_line_of(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    assert deliver(live, dispatch(live), weights(1.0)) is None
    model, sent = live.model.encoded, dispatch(live)
    (tmp_path / "run/ledger.jsonl").unlink()
    with pytest.raises(FedtwinError, match="cannot be written: No such file or directory"):
        deliver(live, sent, weights(5.0))
    with pytest.raises(FedtwinError, match="cannot be written: No such file or directory"):
        live.commit(events.Stopped(at_s=live.now_s(), finished=False))
    assert live.model.encoded != model and live.written_model().encoded == model
    live.close()


def test_records_of_a_ledger_that_was_emptied_at_the_end(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    assert deliver(live, dispatch(live), weights(1.0)) is None
    (tmp_path / "run/ledger.jsonl").write_bytes(b"")
    summary = write_records(live.folder, live.core, live.model)
    assert summary["incomplete"] == "The ledger is not there: no round is left." and summary["uploads_applied"] == 1
    assert (tmp_path / "run/model.safetensors").is_file()
    live.close()


def test_a_run_that_never_began_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", killed)
        with pytest.raises(KilledError):
            opening.begin(tmp_path / "run", config_of(), "main", CODEC.encode(weights(0.0)))
    assert not (tmp_path / "run").exists()
    opening.begin(tmp_path / "run", config_of(), "main", CODEC.encode(weights(0.0))).close()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class SetBack(SystemClock):
    wall_s = staticmethod(lambda: 0.0)


def test_a_wall_clock_that_is_set_back_changes_nothing(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    sent = dispatch(live)
    before_s = live.core.last_at_s
    live.close()
    again = opening.resume(tmp_path / "run", clock=SetBack())
    assert before_s <= again.now_s() < before_s + 60.0
    name = again.core.names[sent.device]
    assert again.receive(name, done_of(sent), CODEC.encode(weights(1.0)), sent.at_s - 5.0) is None
    taken = next(event for event in read_events(tmp_path / "run" / "ledger.jsonl") if isinstance(event, events.Applied))
    assert taken.elapsed_s > 0.0
    again.close()


def test_models_of_tasks_given_up_are_not_kept_for_ever(tmp_path: Path) -> None:
    """FedBuff needs the model an upload started from, as long as the upload would be taken."""
    live = begun(tmp_path / "run", **{"learning.aggregation": "fedbuff", "learning.average": "none", "live.max_staleness": 5})
    for sent in [dispatch(live) for _ in range(3)]:
        assert deliver(live, sent, weights(1.0)) is None
    for _ in range(20):
        lost, sent = dispatch(live), dispatch(live)
        live.commit(live.core.give_up(live.core.open[lost.token], live.now_s(), "the deadline has passed", "idle"))
        assert deliver(live, sent, weights(1.0)) is None
    assert live.core.version == 23
    assert len(list((tmp_path / "run" / "models").glob("model-*"))) <= 7
    live.close()


def test_a_data_set_of_the_folder_one_works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.npz").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    begun(Path("runs/one"), **{"learning.dataset": "mine.npz"}).close()
    monkeypatch.chdir("/")
    again = opening.resume(tmp_path / "runs" / "one")
    assert again.config.learning is not None and again.config.learning.dataset == str(tmp_path / "mine.npz")
    again.close()


def test_a_device_needs_no_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the power rule only, and is told."""
    lines = "from fedtwin.policies import Policy", "POLICY = Policy(lambda view, knobs: view.selections, power='max')"
    (tmp_path / "only_here.py").write_text("\n".join(lines), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        live = begun(tmp_path / "run", **{"policy.name": "only_here:POLICY"})
        settings = shared_settings(live.config)
        live.close()
    monkeypatch.delitem(sys.modules, "only_here")
    assert power_rule(Config.model_validate(settings)) == "max"


def test_what_only_a_simulation_has_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"learning\.record_gradient = true is for simulations only"):
        begun(tmp_path / "run", **{"learning.dataset": "digits", "learning.record_gradient": True})
    for setting in ("learning.executor", "learning.device"):
        with pytest.raises(FedtwinError, match=r"executor and learning\.device = 'cuda' are for simulations only"):
            begun(tmp_path / "run", **{"learning.dataset": "digits", setting: "cuda"})
    assert not list(tmp_path.iterdir())
