"""``fedtwin doctor`` finds what is wrong, one thing at a time, and says what to do; on real brokers."""

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedtwin.cli.app import app
from fedtwin.errors import FedtwinError
from fedtwin.live.broker.provisioning import provision, revoke
from fedtwin.live.checkup import Finding, check_certificates, check_server
from fedtwin.live.run import events, opening
from fedtwin.live.run.tables import write_records
from fedtwin.live.seeing import expires_of
from fedtwin.live.wire.nats_transport import NatsTransport
from fedtwin.live.wire.protocol import Subjects
from tests.live.broker.test_provisioning import prepared
from tests.live.brokers import RUN, SecureFleet, running, secure_fleet
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


@pytest.fixture(autouse=True)
def _logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sets them up for its whole process, which is that of the other tests here."""
    monkeypatch.setattr("fedtwin.cli.live_options.set_up_logs", lambda *_: None)


def found(findings: list[Finding]) -> dict[str, Finding]:
    return {one.what: one for one in findings}


def doctor(*words: object) -> tuple[int, dict[str, dict[str, object]]]:
    done = CliRunner().invoke(app, ["doctor", *map(str, words), "--json"])
    return done.exit_code, {one["what"]: one for one in json.loads(done.stdout)["findings"]}


def test_with_certificates(tmp_path: Path) -> None:
    async def shows(fleet: SecureFleet) -> None:
        async with fleet.clients("edge") as (edge,):
            await prepared(edge)
            facts = json.dumps({"wall_s": time.time()}).encode()
            await NatsTransport(edge).put(Subjects(RUN).twin_bucket, "run", facts)

    with secure_fleet(tmp_path) as fleet:
        url = [fleet.broker.url]
        asyncio.run(shows(fleet))
        viewer = found(check_server(url, run=RUN, credentials=fleet.credentials("viewer"), insecure=False))
        assert all(one.ok for one in viewer.values()) and "cannot be tried" in viewer["data path"].words
        assert f"$JS.API.STREAM.MSG.GET.KV_{Subjects(RUN).twin_bucket}" in viewer["rights"].words
        device = found(check_server(url, run=RUN, credentials=fleet.credentials("press-1"), insecure=False))
        assert device["rights"].ok and device["clock"].ok and "64 KiB reached the broker" in device["data path"].words
        assert not device["edge server"].ok and "none serves run 'main'" in device["edge server"].words
        other = found(check_server(url, run="other", credentials=fleet.credentials("viewer"), insecure=False))
        assert not other["rights"].ok and "another run" in str(other["rights"].todo)
        known = found(check_certificates(fleet.credentials("press-1"), url))
        assert known["certificate"].ok and known["server's certificate"].ok
        revoke(fleet.folder, "press-1")
        cut, end = viewer, time.monotonic() + 30.0
        while cut["connection"].ok and time.monotonic() < end:  # the broker reads its rights anew in its own time
            cut = found(check_server(url, run=RUN, credentials=fleet.credentials("press-1"), insecure=False))
        assert not cut["connection"].ok and "Authorization Violation" in cut["connection"].words


def test_without_certificates(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        alone = found(check_server([broker.url], run=RUN, credentials=None, insecure=False))
        assert alone["connection"].ok and alone["rights"].words.startswith("everything")
        assert not alone["data path"].ok and "stores no uploads of this run" in alone["data path"].words
        assert not alone["edge server"].ok
    gone = check_server([broker.url], run=RUN, credentials=None, insecure=False)
    assert [(one.what, one.ok) for one in gone] == [("connection", False)]


def test_certificates_that_end_soon_and_keys_that_others_read(tmp_path: Path) -> None:
    old = datetime.now(UTC) - timedelta(days=20)
    provision(tmp_path, run=RUN, server_names=[], devices=["a", "b"], days=30, _now=old)
    a, b = tmp_path / "devices" / "a", tmp_path / "devices" / "b"
    soon = found(check_certificates(a, []))["certificate"]
    assert not soon.ok and soon.words.startswith("of a, ends ") and "fedtwin provision" in str(soon.todo)
    assert abs((expires_of(a / "cert.pem") - old - timedelta(days=30)).total_seconds()) < 60
    (b / "key.pem").chmod(0o644)
    assert not found(check_certificates(b, []))["key"].ok
    (a / "cert.pem").write_text("nonsense")
    assert not found(check_certificates(a, []))["certificate"].ok
    assert expires_of(tmp_path / "ca.pem").year > old.year + 8


def test_disk_data_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "good.npz", x_train=np.zeros((5, 3, 20), np.float32), y_train=np.linspace(0.0, 1.0, 5))
    code, well = doctor("--data", "good.npz")
    assert code == 0 and well["disk"]["ok"] and well["data"]["words"] == "good.npz: 5 samples of shape 3x20x1"
    code, bad = doctor(tmp_path / "nowhere", "--data", "missing.npz")
    assert code == 1 and not bad["disk"]["ok"] and not bad["run"]["ok"] and not bad["data"]["ok"]
    assert all(bad[what]["todo"] for what in ("disk", "run", "data")) and bad["run"]["todo"] == "name the folder of a run"
    done = CliRunner().invoke(app, ["doctor", "--data", "missing.npz"])
    assert done.exit_code == 1 and "problem data" in " ".join(done.stdout.split()) and " -> " in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["good.npz"], "nothing is left behind"


def test_a_finished_run_whose_files_were_changed(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    assert deliver(live, dispatch(live), weights(1.0)) is None
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    write_records(live.folder, live.core, live.model)
    live.close()
    assert doctor(tmp_path / "run")[1]["run"]["words"] == "finished, round 0 of 50, 1 uploads"
    ledger, model = tmp_path / "run" / "ledger.jsonl", tmp_path / "run" / "model.safetensors"
    whole = ledger.read_bytes()
    ledger.write_bytes(b"".join(whole.splitlines(keepends=True)[:4]))
    code, bad = doctor(tmp_path / "run")
    assert code == 1 and "its records say that it is finished, its ledger says: " in str(bad["run"]["words"])
    ledger.write_bytes(whole)
    model.write_bytes(model.read_bytes()[:-4])
    code, bad = doctor(tmp_path / "run")
    assert "--repair" in str(bad["run"]["todo"])
    assert code == 1 and "model.safetensors' is not as it was written" in str(bad["run"]["words"])


def stopped_run(folder: Path) -> None:
    live = begun(folder, **{"learning.average": "none", "learning.aggregation": "fedbuff", "learning.buffer_size": 3})
    for number in range(5):
        assert deliver(live, dispatch(live), weights(float(number))) is None
    live.commit(events.Stopped(at_s=live.now_s(), finished=False))
    live.close()


def newest(folder: Path, kind: str) -> Path:
    return max((folder / "models").glob(f"{kind}-*"))


def without_models(folder: Path) -> None:
    for path in (folder / "models").iterdir():
        path.unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "a torn line": lambda run: (run / "ledger.jsonl").write_bytes((run / "ledger.jsonl").read_bytes() + b"{"),
    "an emptied ledger": lambda run: (run / "ledger.jsonl").write_bytes(b""),
    "an older ledger": lambda run: (run / "ledger.jsonl").write_bytes(
        b"".join((run / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:-10])
    ),
    "an emptied model": lambda run: newest(run, "model").write_bytes(b""),
    "a changed upload": lambda run: newest(run, "upload").write_bytes(newest(run, "upload").read_bytes()[:-1] + b"x"),
    "a lost upload": lambda run: newest(run, "upload").unlink(),
    "no models": without_models,
    "no folder of models": lambda run: shutil.rmtree(run / "models"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_stopped_run_is_well_if_it_would_be_resumed(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "run"
    stopped_run(folder)
    DAMAGE[damage](folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, told = doctor(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before, "nothing is touched"
    if damage in ("nothing", "a torn line"):
        assert code == 0 and told["run"]["words"] == "stopped, round 2 of 50, 5 uploads"
        opening.resume(folder).close()
        return
    assert code == 1 and not told["run"]["ok"]
    with pytest.raises(FedtwinError) as refused:
        opening.resume(folder)
    assert told["run"]["words"] == str(refused.value).rstrip(".")


def test_a_run_that_is_served_is_not_held_against_its_files(tmp_path: Path) -> None:
    """They change while one looks."""
    live = begun(tmp_path / "run")
    newest(tmp_path / "run", "model").write_bytes(b"")
    assert "is damaged" not in str(doctor(tmp_path / "run")[1]["run"]["words"])
    live.close()
    assert "is damaged: it is not what the ledger says" in str(doctor(tmp_path / "run")[1]["run"]["words"])


def test_orders_need_the_operators_certificate(tmp_path: Path) -> None:
    provision(tmp_path / "fleet", run=RUN, server_names=[], devices=[])
    words = ["admin", "pause", "--server", "tls://127.0.0.1:1", "--credentials", str(tmp_path / "fleet" / "viewer")]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, FedtwinError)
    assert "are those of the viewer: orders need those of the operator" in str(done.exception)
