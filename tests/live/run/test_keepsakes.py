"""A live run keeps what it serves and the best of it, also over a kill; its result says what it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.learning.aggregation.average import decay_of
from fedtwin.learning.card import FILES, ModelCard, Which, read_card
from fedtwin.live.run import events, opening
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import write_records
from fedtwin.live.wire.tensors import metadata_of
from tests.live.run.test_live_run import CODEC, begun, deliver, dispatch, weights


def read(folder: Path, which: Which) -> tuple[ModelCard, float]:
    data = (folder / FILES[which]).read_bytes()
    floats = CODEC.decode(data).floats
    assert np.ptp(floats) == 0.0
    return read_card(metadata_of(data), which), float(floats[0])


def evaluate(live: LiveRun, metric: float) -> None:
    """As the edge server does, with what its worker says."""
    version = live.core.version
    live.keepsakes.describe()
    live.keepsakes.measured(live.model.served, version, live.core.round, 1.0, metric)
    told: dict[str, Any] = {
        "version": version,
        "model_at_s": live.now_s(),
        "energy_j": 0.0,
        "test_loss": 1.0,
        "test_metric": metric,
    }
    told["plain_test_metric"] = metric - 0.1 if live.model.averages else None
    live.commit(events.Measured(at_s=live.now_s(), round=live.core.round, **told))


def test_what_is_served_and_the_best_survive_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    live = begun(folder)
    evaluate(live, 0.1)
    seen, average = [], 0.0
    for upload, metric in enumerate((0.8, 0.4, 0.9)):
        live.close()
        live = opening.resume(folder)
        assert deliver(live, dispatch(live), weights(1.0)) is None
        average += (1.0 - decay_of(upload, 138.0)) * (float(live.model.weights.floats[0]) - average)
        evaluate(live, metric)
        seen.append(average)
        card, value = read(folder, "served")
        assert value == pytest.approx(average) and (card.version, card.test_metric, card.average) == (upload + 1, metric, "ema")
        best, value = read(folder, "best")
        assert value == pytest.approx(seen[2 if upload == 2 else 0]) and best.version == (3 if upload == 2 else 1)
    assert average < float(live.model.weights.floats[0]) < 1.0
    live.close()


@pytest.mark.parametrize("average", ["ema", "none"])
@pytest.mark.parametrize("evaluated", [True, False])
def test_the_result_says_what_it_is_and_only_what_was_measured_of_it(tmp_path: Path, evaluated: bool, average: str) -> None:
    folder = tmp_path / "run"
    live = begun(folder, **{"learning.average": average})
    evaluate(live, 0.1)
    assert deliver(live, dispatch(live), weights(1.0)) is None
    if evaluated:
        evaluate(live, 0.7)
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    write_records(folder, live.core, live.model)
    live.close()
    card, value = read(folder, "served")
    assert live.core.began is not None and card.config_hash == live.core.began.config_hash
    assert value == pytest.approx(0.45 if average == "ema" else 0.5)
    assert (card.version, card.test_metric, card.average) == (1, 0.7 if evaluated else None, average)
    assert (card.shape, card.outputs, card.input) == ((1, 8, 8), 10, "images") and card.normalisation
    sums = (folder / "SHA256SUMS").read_text()
    assert all(name in sums for name in (FILES["served"], FILES["best"])) and (FILES["plain"] in sums) == (average == "ema")
    if average == "ema":
        plain, value = read(folder, "plain")
        assert value == 0.5 and (plain.average, plain.test_metric) == ("none", pytest.approx(0.6) if evaluated else None)


@pytest.mark.parametrize(("rounds", "more", "averages"), [(50, 5000, False), (5000, 50, True)])
def test_whether_it_averages_stays_however_many_rounds_are_set(tmp_path: Path, rounds: int, more: int, averages: bool) -> None:
    live = begun(tmp_path / "run", **{"learning.average": "auto", "run.rounds": rounds})
    deliver(live, dispatch(live), weights(1.0))
    live.change("run.rounds", more)
    served = live.model.served.floats.copy()
    assert live.model.averages == averages == bool(served[0] != live.model.weights.floats[0])
    live.close()
    again = opening.resume(tmp_path / "run")
    assert again.model.averages == averages and again.core.config.run.rounds == more
    assert np.array_equal(again.model.served.floats, served)
    again.close()
