"""``fedtwin whatif`` in a process of its own."""

import json
from pathlib import Path

import pytest

from fedtwin import whatif
from tests.conftest import Cli
from tests.whatif.runs import played

QUESTION = ("--at", 60, "--set", "policy.v=1000", "--rounds", 20, "--worlds", 3)


def test_it_prints_both_futures_or_one_object(cli: Cli, tmp_path: Path) -> None:
    run = played(tmp_path / "run", run__rounds=80)
    done = cli("whatif", "run", *QUESTION, "--without", "device-2", "--add", 1, "--seed", 4, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    asked = whatif(run, at=60, set={"policy.v": 1000}, rounds=20, worlds=3, without=["device-2"], add=1, seed=4)
    assert json.loads(done.stdout) == {**json.loads(json.dumps(asked.as_dict())), "run": "run"}
    shown = cli("whatif", "run", *QUESTION)
    assert shown.returncode == 0 and "20 rounds from round 60 on, in 3 worlds" in shown.stdout
    found = whatif(run, at=60, set={"policy.v": 1000}, rounds=20, worlds=3)
    for future in (found.as_is, found.what_if):
        assert f"{future.mean_cost.low:.4f} … {future.mean_cost.high:.4f}" in shown.stdout
    assert found.notes[0] in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "'nowhere' is not the folder of a run"),
        (["run", "--at", "999"], "at = 999 is not allowed"),
        (["run", "--set", "run.seed=1"], "run.seed is not for a what-if"),
        (["run", "--without", "nobody"], "without = 'nobody': there is no such device"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_and_code_2(cli: Cli, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    played(tmp_path / "run", run__rounds=20)
    done = cli("whatif", *arguments)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr
