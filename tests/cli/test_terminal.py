"""No result is lost to a terminal that lacks letters, a pipe that ends early, or a full disk behind it."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from fedtwin.cli.terminal import in_letters_of
from fedtwin.records import read_summary
from tests.conftest import FEDTWIN

COMMANDS = {
    "run": ["run", "--rounds", "20"],
    "compare": ["compare", "--rounds", "20", "--seeds", "1", "--schemes", "CU-UCB,Random", "--workers", "1"],
    "help": ["sweep", "--help"],
    "an error": ["run", "--set", "policy.name=Ωmega"],
}


def run(arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    known = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run([*FEDTWIN, *arguments], capture_output=True, cwd=folder, env=known, timeout=300, check=False)


def into_a_closed_pipe(arguments: list[str], folder: Path, *, errors_too: bool = False) -> subprocess.CompletedProcess[bytes]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [*FEDTWIN, *arguments], stdout=writer, stderr=writer if errors_too else subprocess.PIPE, cwd=folder, timeout=300,
            check=False,
        )  # fmt: skip
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("name", "encoding"), [*((name, "ascii") for name in COMMANDS), ("run", "latin-1"), ("compare", "latin-1")]
)
def test_a_terminal_without_greek_gets_the_same_text_in_its_own_letters(tmp_path: Path, name: str, encoding: str) -> None:
    wide = run(COMMANDS[name], tmp_path, PYTHONIOENCODING="utf-8")
    narrow = run(COMMANDS[name], tmp_path, PYTHONIOENCODING=encoding)
    assert narrow.returncode == wide.returncode and b"Traceback" not in narrow.stderr
    numbers = [word for word in wide.stdout.decode().split() if word.replace(".", "").isdigit()]
    assert [word for word in narrow.stdout.decode(errors="replace").split() if word.replace(".", "").isdigit()] == numbers
    if name in ("run", "compare"):
        assert "Ω" in wide.stdout.decode() and "cost Omega" in narrow.stdout.decode(encoding)
    if name == "an error":
        assert "Omegamega" in narrow.stderr.decode(encoding)


def test_the_c_locale_is_no_trouble(tmp_path: Path) -> None:
    done = run(COMMANDS["run"], tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0 and done.stderr == b"" and b"cost Omega" in done.stdout


def test_columns_stay_in_line_in_other_letters(tmp_path: Path) -> None:
    lines = run(COMMANDS["run"], tmp_path, PYTHONIOENCODING="ascii").stdout.decode().splitlines()
    cost, time_s = (next(line for line in lines if what in line) for what in ("mean cost", "mean time"))
    assert len(cost.rstrip()) == len(time_s.rstrip())


@pytest.mark.parametrize(
    ("text", "ascii_text"),
    [
        ("Ω − Ω … 2×3 ≤ λ", "Omega - Omega ... 2x3 <= lambda"),
        ("Öfen", r"\u00d6fen"),
        ("\udcff", r"\udcff"),
        ("𝛀", r"\U0001d6c0"),
    ],
)
def test_what_has_no_letter_is_spelled_out(text: str, ascii_text: str) -> None:
    assert in_letters_of("ascii", text) == ascii_text
    assert in_letters_of("utf-8", "Ω") == "Ω"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_shown_settings_can_be_read_back_whatever_the_terminal(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "Ωfen é.csv").write_text("distance_m,samples,cpu_hz\n50,80,2e9\n")
    settings = ["--set", "fleet.file=Ωfen é.csv", "--set", "fleet.channels=1"]
    shown = run(["config", "show", *settings], tmp_path, PYTHONIOENCODING=encoding)
    assert tomllib.loads(shown.stdout.decode("utf-8"))["fleet"]["file"] == "Ωfen é.csv"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_pipe_closed_early_costs_no_records(tmp_path: Path, as_json: bool) -> None:
    arguments = ["run", "--rounds", "50", "--out", "run", *(["--json"] if as_json else [])]
    done = into_a_closed_pipe(arguments, tmp_path)
    assert (done.returncode, done.stderr) == (141, b"")
    assert read_summary(tmp_path / "run")["rounds"] == 50


def test_a_warning_into_a_closed_pipe_does_not_stop_the_run(tmp_path: Path) -> None:
    arguments = ["run", "--rounds", "50", "--out", "run", "--set", "objective.min_mean_samples=9"]
    assert into_a_closed_pipe(arguments, tmp_path, errors_too=True).returncode == 141
    assert read_summary(tmp_path / "run")["rounds"] == 50


@pytest.mark.parametrize("arguments", [["config", "show"], ["--help"]])
def test_every_command_ends_quietly_when_nobody_reads(tmp_path: Path, arguments: list[str]) -> None:
    done = into_a_closed_pipe(arguments, tmp_path)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_error_stays_an_error_when_nobody_reads(tmp_path: Path) -> None:
    assert into_a_closed_pipe(["run", "--rounds", "-1"], tmp_path, errors_too=True).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_a_sentence_and_costs_no_records(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*FEDTWIN, "run", "--rounds", "50", "--out", "run"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr == b"error: The output cannot be written: No space left on device.\n"
    assert read_summary(tmp_path / "run")["rounds"] == 50


def test_no_output_at_all_is_fine(tmp_path: Path) -> None:
    command = ["sh", "-c", '"$@" >&- 2>&-', "sh", *FEDTWIN, "run", "--rounds", "50", "--out", "run"]
    assert subprocess.run(command, cwd=tmp_path, timeout=300, check=False).returncode == 0
    assert read_summary(tmp_path / "run")["rounds"] == 50


def test_an_unexpected_error_keeps_its_traceback_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "from fedtwin.policies import Policy\n"
        "import fedtwin.records.folder as folder\n"
        "def fails(*_, **__): raise RuntimeError('a bug')\n"
        "folder.write_mark = fails\n"
        "POLICY = Policy(lambda view, knobs: 0.0, power='max')\n"
    )
    done = run(["run", "--rounds", "50", "--policy", "odd:POLICY", "--out", "run"], tmp_path)
    assert done.returncode == 1 and b"Traceback" in done.stderr and b"RuntimeError: a bug" in done.stderr
    assert not (tmp_path / "run").exists()


def test_json_is_whole_in_any_terminal(tmp_path: Path) -> None:
    done = run(["run", "--rounds", "20", "--json"], tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["rounds"] == 20
