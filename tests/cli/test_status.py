"""``fedtwin status`` on a run folder: everybody by name, and nothing a device says is more than text."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedtwin import load_config, simulate
from fedtwin.cli.app import app
from fedtwin.errors import FedtwinError
from fedtwin.live.run import opening
from tests.live.run.test_live_run import begun, deliver, dispatch, weights

HOSTILE = "norm: \x1b[2J\x9b31m [red]gone[/red]"


@pytest.fixture(autouse=True)
def _logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sets them up for its whole process, which is that of the other tests here."""
    monkeypatch.setattr("fedtwin.cli.live_options.set_up_logs", lambda *_: None)


def said(*words: str) -> str:
    """What the command prints."""
    done = CliRunner().invoke(app, ["status", *words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    live.quarantine("b", HOSTILE)
    yield tmp_path / "run"
    live.close()


def test_a_live_run_on_one_screen(folder: Path) -> None:
    output = said(str(folder))
    assert "main: cu-ucb, async, round" in output and "1 uploads" in output and "3 devices" in output
    assert [line.split()[0] for line in output.splitlines() if " idle" in line and "device" not in line] == ["a", "c"]
    assert "\x1b" not in output and "\x9b" not in output
    assert "norm: \\x1b[2J\\x9b31m [red]gone[/red]" in output, "no markup either"


def test_large_fleets_are_cut_and_say_so(folder: Path) -> None:
    output = said(str(folder), "--most", "1")
    assert "quarantined" in output and "and 2 more devices" in output and " idle  " not in output
    told = json.loads(said(str(folder), "--most", "2", "--sort", "name", "--json"))
    assert [row["name"] for row in told["devices"]] == ["a", "b"] and told["more_devices"] == 1


def test_a_simulation_has_devices_too(tmp_path: Path) -> None:
    simulate(load_config(overrides={"fleet.devices": 5, "fleet.channels": 2, "run.rounds": 20}), out=tmp_path / "run")
    told = json.loads(said(str(tmp_path / "run"), "--json"))
    assert told["run"]["state"] == "finished" and told["run"]["round"] == 20
    assert len(told["devices"]) == 5 and sum(row["uploads"] for row in told["devices"]) > 10
    assert said(str(tmp_path / "run"), "--watch").count("finished") == 1, "it ends with the run"


def test_watching_goes_on_until_it_is_interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("fedtwin.cli.status.time.sleep", sleep)
    lines = said(str(folder), "--watch", "--every-s", "0.5", "--json").splitlines()
    assert slept == [0.5] * 3 and [json.loads(line)["run"]["name"] for line in lines] == ["main"] * 3


def test_watching_goes_on_while_a_run_is_damaged_and_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, slept = tmp_path / "run", 0
    begun(folder).close()

    def sleep(seconds: float) -> None:  # noqa: ARG001
        nonlocal slept
        slept += 1
        if slept == 1:
            with (folder / "ledger.jsonl").open("ab") as ledger:
                ledger.write(bytes(64) + b"\n")
        elif slept == 3:
            opening.resume(folder, repair=True).close()
        elif slept == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("fedtwin.cli.status.time.sleep", sleep)
    done = CliRunner().invoke(app, ["status", str(folder), "--watch", "--json"])
    assert done.exit_code == 0 and slept == 4
    assert [json.loads(line)["run"]["name"] for line in done.stdout.splitlines() if line.startswith("{")] == ["main"] * 2
    assert done.stderr.count("error: ") == 1 and "is damaged in line" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "One of RUN"),
        (["x", "--server", "nats://127.0.0.1:1"], "One of RUN"),
        (["x"], "is not the folder of a run"),
        (["x", "--sort", "age"], "--sort 'age' is not allowed"),
        (["--server", "nats://127.0.0.1:1"], "cannot be reached"),
    ],
)
def test_bad_input(words: list[str], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        said(*words)
