"""Compressed uploads at the edge server: mixed in as the device meant them, exactly once, also after a kill; or refused."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from fedtwin.learning.layout import Floats, Weights
from fedtwin.live.run import events, opening
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.model import model_path
from fedtwin.live.wire.updates import UpdateCodec, update_codec_of
from tests.live.run.test_live_run import LAYOUT, applied, begun, dispatch, done_of, killed, weights
from tests.live.run.test_round import SYNC, opened

TOP_K = {"learning.compress": "top-k", "learning.top_k": 0.5, "learning.average": "none"}


def codec_of(live: LiveRun) -> UpdateCodec:
    codec = update_codec_of(live.config.learning, LAYOUT)
    assert codec is not None
    return codec


def body_of(live: LiveRun, start: Weights, change: Floats) -> bytes:
    codec = codec_of(live)
    return codec.encode(codec.compressor.send(start, Weights(start.floats + change, start.counters)).parts)


def deliver(live: LiveRun, sent: events.Dispatched, body: bytes) -> str | None:
    done = done_of(sent).model_copy(update={"model_bytes": len(body)})
    return live.receive(live.core.names[sent.device], done, body, live.now_s())


def change(*values: float) -> Floats:
    return np.array(values, np.float32)


@pytest.mark.parametrize("aggregation", ["fedasync", "fedbuff"])
@pytest.mark.parametrize("when", ["file", "before-line", "after-line"])
def test_a_change_is_added_to_the_model_its_device_had_and_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, aggregation: str
) -> None:
    folder = tmp_path / "run"
    live = begun(folder, **TOP_K, **{"learning.aggregation": aggregation, "learning.buffer_size": 2})
    zero = weights(0.0)
    first, second = dispatch(live), dispatch(live)
    assert deliver(live, first, body_of(live, zero, change(2, 0, 0.5, 4))) is None
    body = body_of(live, zero, change(0.5, 6, 8, 1))
    with killed(monkeypatch, when):
        deliver(live, second, body)
    live._lock.release()
    again = opening.resume(folder)
    assert (deliver(again, second, body) is None) == (when != "after-line")
    assert applied(folder) == [first.token, second.token]
    came = change(2, 0, 0, 4), change(0, 6, 8, 0)
    expected = 0.5 * 0.5 * came[0] + 0.5 * came[1] if aggregation == "fedasync" else 0.5 * (came[0] + came[1]) / 2.0
    np.testing.assert_allclose(again.model.weights.floats, expected)
    third = dispatch(again)
    start = again.model.weights
    assert deliver(again, third, body_of(again, start, change(1, 0, 0, 1))) is None
    again.close()
    final = opening.resume(folder)
    np.testing.assert_array_equal(final.model.weights.floats, again.model.weights.floats)
    final.close()


def test_models_that_tasks_began_with_are_kept_as_long_as_they_are_needed(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **TOP_K, **{"live.max_staleness": 5})
    old = dispatch(live)
    for _ in range(4):
        sent = dispatch(live)
        assert deliver(live, sent, body_of(live, live.model.weights, change(1, 0, 0, 0))) is None
    assert model_path(tmp_path / "run" / "models", 0).exists()
    before = live.model.weights.floats
    assert deliver(live, old, body_of(live, weights(0.0), change(0, 3, 0, 0))) is None
    np.testing.assert_allclose(live.model.weights.floats, 0.5 * before + 0.5 * change(0, 3, 0, 0))
    for _ in range(20):
        lost, sent = dispatch(live), dispatch(live)
        live.commit(live.core.give_up(live.core.open[lost.token], live.now_s(), "the deadline has passed", "idle"))
        assert deliver(live, sent, body_of(live, live.model.weights, change(1, 0, 0, 0))) is None
    assert len(list((tmp_path / "run" / "models").glob("model-*"))) <= 9
    live.close()


def test_a_change_of_a_model_that_is_gone_is_refused(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **TOP_K)
    sent, body = dispatch(live), body_of(live, weights(0.0), change(1, 0, 0, 0))
    fresh = dispatch(live)
    assert deliver(live, fresh, body) is None
    model_path(tmp_path / "run" / "models", 0).unlink()
    assert deliver(live, sent, body) == "stale: the model it started from is gone"
    assert not live.core.is_quarantined(live.core.names[sent.device])
    live.close()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"fedtwin.places": np.array([0, 4], np.uint32)}, "range: a place"),
        ({"fedtwin.places": np.array([2, 1], np.uint32)}, "range: the places"),
        ({"fedtwin.places": np.array([1, 1], np.uint32)}, "range: the places"),
        ({"fedtwin.values": np.array([1, np.inf], np.float32)}, "not finite"),
        ({"fedtwin.values": np.array([1e38, 1e38], np.float32)}, "norm"),
        ({"fedtwin.values": np.array([1.0], np.float32)}, "shape"),
        ({"fedtwin.counters": np.array([-1], np.int64)}, "range: a counter is negative"),
        ({"fedtwin.counters": np.array([2**62], np.int64)}, "range: a counter grew"),
        ({"fedtwin.counters": np.array([1], np.int32)}, "type"),
        ({"other": np.zeros(3, np.float32)}, "shape"),
    ],
    ids=str,
)
def test_what_no_honest_device_sends_is_refused_and_answered_by_quarantine(
    tmp_path: Path, bad: dict[str, np.ndarray], reason: str
) -> None:
    live = begun(tmp_path / "run", **TOP_K)
    sent, before = dispatch(live), live.model.encoded
    parts = load(body_of(live, weights(0.0), change(1, 0, 0, 2)))
    assert (deliver(live, sent, save({**parts, **bad})) or "").startswith(reason)
    assert live.core.is_quarantined(live.core.names[sent.device]) and live.model.encoded == before
    live.close()


@pytest.mark.parametrize("compress", ["float16", "int8", "top-k"])
def test_bytes_of_another_kind_are_refused(tmp_path: Path, compress: str) -> None:
    live = begun(tmp_path / "run", **{"learning.compress": compress})
    whole = live.model.codec.encode(weights(1.0))
    for sent, body in zip([dispatch(live) for _ in range(3)], (whole, b"", bytes(40)), strict=True):
        assert (deliver(live, sent, body) or "").split(":")[0] in ("shape", "not safetensors")
    assert live.model.upload_bytes == codec_of(live).size
    live.close()


@pytest.mark.parametrize("compress", ["float16", "int8", "top-k"])
def test_a_synchronous_round_takes_changes_too(tmp_path: Path, compress: str) -> None:
    live = begun(tmp_path / "run", **SYNC, **{"learning.compress": compress})
    for sent in opened(live):
        assert deliver(live, sent, body_of(live, weights(0.0), change(0, 0, 0, 2))) is None
    assert live.close_round()
    np.testing.assert_allclose(live.model.weights.floats, change(0, 0, 0, 2), atol=1e-3)
    live.close()
    again = opening.resume(tmp_path / "run")
    np.testing.assert_array_equal(again.model.weights.floats, live.model.weights.floats)
    again.close()
