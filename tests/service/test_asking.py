"""What-if over HTTP: the answer of ``fedtwin.whatif``, from a worker that may die, and never from the service itself."""

import threading
from pathlib import Path

import httpx
import pytest

import fedtwin
from fedtwin.service.asking import Asking
from fedtwin.service.telling import UnansweredError
from fedtwin.service.twins import Twins
from tests.conftest import until
from tests.service.serving import serving_twins

pytest.importorskip("fedtwin.whatif")


@pytest.fixture(scope="module")
def twins(folder: Path) -> Twins:
    return Twins([folder])


def test_the_answer_is_that_of_python_with_the_track_record(folder: Path, twins: Twins) -> None:
    question = {"set": {"policy.v": 1000}, "without": ["device-3"], "rounds": 30, "worlds": 3}
    with serving_twins(twins) as client:
        told = client.post("/api/whatif", json={"run": "factory", **question}, timeout=300).json()
        wanted = fedtwin.whatif(folder, set={"policy.v": 1000}, without=[3], rounds=30, worlds=3).as_dict()
        assert {**told, "run": wanted["run"], "fidelity": None} == {**wanted, "fidelity": None}
        assert told["run"] == "factory" and told["fidelity"]["cost"]["count"] > 0
        _refused(client)
        assert twins.asking._pool is not None
        for process in list(twins.asking._pool._processes.values()):
            process.kill()
            process.join()
        answer = client.post("/api/whatif", json={"run": "factory", **question}, timeout=300)
        if answer.status_code == 409:  # it was asked before the death was seen
            answer = client.post("/api/whatif", json={"run": "factory", **question}, timeout=300)
        assert answer.json() == told


def test_a_question_that_nobody_waits_for_is_dropped_and_the_next_is_asked_again(folder: Path) -> None:
    """It went on for minutes, and whoever asked behind it was told that the worker had died."""
    asking, gone = Asking(), threading.Event()
    told: list[str] = []

    def heavy() -> None:
        with pytest.raises(UnansweredError) as refused:
            asking.ask(str(folder), {"rounds": 1_000_000, "worlds": 10}, gone)
        told.append(refused.value.sentence)

    def light() -> None:
        told.append(str(asking.ask(str(folder), {"rounds": 5, "worlds": 2, "look_back": False})["rounds"]))

    try:
        first = threading.Thread(target=heavy)
        first.start()
        until(lambda: asking._pool is not None and asking._pool._processes, "the worker")
        second = threading.Thread(target=light)
        second.start()
        gone.set()
        first.join(60.0)
        second.join(120.0)
        assert told == ["Nobody waits for the answer.", "5"]
    finally:
        asking.close()


def test_nobody_who_asks_names_code_also_where_the_owner_of_the_run_is_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer had any module imported that Python could find."""
    (tmp_path / "evilpol.py").write_text(
        f"open({str(tmp_path / 'was-here')!r}, 'w')\nfrom fedtwin.policies.cu_ucb import POLICY\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serving_twins(Twins([folder], trust=True)) as client:
        for setting, value in (
            ("policy.name", "evilpol:POLICY"),
            ("policy.name", "evilpol"),
            ("world.channel", "evilpol:POLICY"),
            ("learning.model", "evilpol:POLICY"),
            ("code.folder", "elsewhere"),
        ):
            question = {"run": "factory", "set": {setting: value}, "rounds": 5, "worlds": 2}
            answer = client.post("/api/whatif", json=question, timeout=300)
            assert answer.status_code == 403 and value in answer.json()["error"], answer.text
        long = client.post("/api/whatif", json={"run": "factory", "set": {"x" * 5000: 1}})
        assert long.status_code == 400 and len(long.json()["error"]) < 200
        known = {"run": "factory", "set": {"policy.name": "queue-only"}, "rounds": 5, "worlds": 2}
        assert client.post("/api/whatif", json=known, timeout=300).status_code == 200
    assert not (tmp_path / "was-here").exists()


def _refused(client: httpx.Client) -> None:
    for question, words in (
        ({"set": {"run.seed": 3}}, "run.seed"),
        ({"rounds": 1_000_000, "worlds": 1000}, "together"),
        ({"worlds": 1}, "between 2 and 1000"),
        ({"without": ["nobody"]}, "nobody"),
        ({"more": 1}, "'more' is not known"),
        ({"at": 4000}, "4000"),
    ):
        answer = client.post("/api/whatif", json={"run": "factory", **question}, timeout=300)
        assert answer.status_code == 400 and words in answer.json()["error"], answer.text
