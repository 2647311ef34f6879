"""Series of single devices: as many as were asked for, and no more; and whether the server is well."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fedtwin.live.views import health
from fedtwin.live.views.device_series import DeviceSeries
from fedtwin.live.views.metrics import Metrics
from tests.live.run.test_live_run import deliver, dispatch, weights
from tests.live.views.test_sight import seen


@pytest.mark.parametrize("most", [0, 2, 50])
def test_there_are_no_more_series_than_were_asked_for(tmp_path: Path, most: int) -> None:
    live, sight = seen(tmp_path / "run")
    metrics = Metrics()
    metrics.registry.register(DeviceSeries(live.core, sight, live.now_s, most))
    sent = dispatch(live)
    deliver(live, sent, weights(1.0))
    found = {family.name: family.samples for family in metrics.registry.collect()}
    states = {sample.labels["device"]: sample.labels["state"] for sample in found["fedtwin_device_state"] if sample.value}
    assert states == dict.fromkeys(["a", "b", "c"][:most], "idle")
    assert [sample.value for sample in found["fedtwin_devices_without_series"]] == [max(3 - most, 0)]
    assert len(found["fedtwin_device_queue"]) == min(most, 3)
    ages = found["fedtwin_device_last_upload_age_seconds"]
    assert {sample.labels["device"] for sample in ages} == {live.core.names[sent.device]} & set(live.core.names[:most])
    live.close()


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_liveness_and_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    port = metrics.serve("127.0.0.1:0")
    assert asked(port, "/healthz") == (200, "ok\n") and asked(port, "/readyz") == (503, "the run is not open yet\n")
    for connected, path_ok, answer in (
        (True, True, (200, "ok\n")),
        (True, False, (503, "no upload comes through\n")),
        (False, True, (503, "the broker is not reached\n")),
    ):
        metrics.health.looked(connected=connected, path_ok=path_ok)
        assert asked(port, "/readyz") == answer and asked(port, "/healthz") == (200, "ok\n")
    monkeypatch.setattr(health, "STANDS_S", -1.0)
    for path in ("/healthz", "/readyz"):
        code, words = asked(port, path)
        assert code == 503 and "stands still" in words
    code, words = asked(port, "/metrics")
    assert code == 200 and "fedtwin_round" in words
