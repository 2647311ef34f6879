"""docs/claims.md leaves out nothing of the paper, its commands are commands, and its numbers are what they measure."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from benchmarks.claims.measures import MEASURES
from benchmarks.claims.tables import TABLES

from fedtwin.cli.app import app
from fedtwin.experiments.specs import figure as specs

ROOT = Path(__file__).parents[1]
VERDICTS = ("holds", "holds in part", "does not hold", "cannot be tested")
NUMBER = re.compile(r"−?\d[\d,]*(?:\.\d+)?")
TAKE_LONG = {"decomposition", "penalty", "proof", "queue-rate"}
"""Measurements with engines that no other test compiles, or with long runs."""
LABELS = {
    "fig:system model figure": "Figure 1",
    "SGD optimizer": "(1)",
    "asynchronous global aggregation": "(2)",
    "polynomial staleness function": "(3)",
    "smooth function": "Assumption 1",
    "weak convexity": "Assumption 2",
    "convergence theorem": "Theorem 1",
    "upper bound of convergence": "(4)",
    "remark1": "Remark 1",
    "Time consumption of IoT device for local training": "(5)",
    "uplink transmission rate": "(7)",
    "Energy consumption of IoT device for local training": "(6)",
    "the transmission time of IoT device n": "(8)",
    "the energy consumption for uploading the local model": "(9)",
    "the total time spent by selected IoT device": "(10)",
    "the total energy spent by selected IoT device": "(11)",
    "the optimization problem 1": "(13)",
    "the cumulative energy consumption and latency of IoT device": "(12)",
    "a virtual queue": "(14)",
    "Lyapunov drift plus penalty function": "(16)",
    "the optimization problem 2": "(17)",
    "the optimization problem 4": "(18)",
    "the optimization problem 3": "(19)",
    "the optimization problem 5": "(20)",
    "variable function": "(21)",
    "the optimization problem 6": "(22)",
    "convex objective function": "Theorem 2",
    "first derivatives of objective function equal 0": "(23)",
    "number of solutions for equation": "Theorem 3",
    "first derivatives of objective function equal 0_1": "(24)",
    "case1_1": "(25)",
    "case2_1": "(26)",
    "case3_1": "(27)",
    "all cases of optimal solution": "(28)",
    "closed-form expression for optimal solution": "(29)",
    "updated equation": "(30)",
    "samp means": "(31)",
    "UCB estimate1": "(32)",
    "select the minimal arm": "(33)",
    "Online Learning Algorithm for IoT Device Scheduling": "Algorithm 1",
    "upper bound on the time-average regret": "(34)",
    "upper bound on the time-average LUCB regret": "(35)",
    "theorem of upper bound on the time-average LUCB regret": "Theorem 4",
    "fig:D_minvsU": "Figure 3",
    "fig:lambda_U": "Figure 4",
    "fig:virtual_queue": "Figure 5",
    "fig:fashion_mnist": "Figure 6",
    "fig:cifar_10_IID": "Figure 7",
    "fig:cifar10_noniid": "Figure 8",
    "fig:acc_D_min": "Figure 9",
    "C11_1": "(36)",
    "C11_2": "(37)",
    "C10_1": "(38)",
    "g(p_n)": "(39)",
    "first derivative of g(p_n)": "(40)",
    "g(p_n)1": "(41)",
    "first derivative of g(p_n)1": "(42)",
    "the maximum transmit power in C10": "(43)",
    "first derivatives of objective function": "(44)",
    "second derivatives of objective function": "(45)",
    "first derivatives of Phi": "(46)",
    "limit to 0": "(47)",
    "limit to infty": "(48)",
    "rewrite the regret of LUCB": "(49)",
    "bound of expected drift-plus-regret": "(51)",
    "upper bound2": "(52)",
    "rule of new ploicy": "(53)",
}
"""What the paper's source labels, and what it is called in print."""
WITHOUT_LABEL = ("DT", "(15)", "(50)", "(54)", "(55)", "Footnote 1", "C1", "C2", "C3", "C4", "C5", "C6")
SECTIONS = (
    "Abstract",
    "I",
    "II",
    "III-A",
    "III-B",
    "III-C",
    "IV",
    "IV-A",
    "IV-B",
    "IV-C",
    "IV-D",
    "V",
    "VI",
    "A",
    "B",
    "C",
    "D",
)


class Claim(NamedTuple):
    """One row of the page."""

    section: str
    item: str
    says: str
    verdict: str
    found: str
    command: str

    @property
    def commands(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.command)

    @property
    def measured_by(self) -> list[str]:
        own = [command for command in self.commands if command.startswith("python -m benchmarks.claims ")]
        return [name for command in own for name in command.split()[3:]]


def claims() -> list[Claim]:
    lines = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("| ")]
    return [Claim(*row) for row in cells if row[0] != "section"]


CLAIMS = claims()


def test_every_row_has_a_verdict_a_finding_and_a_command() -> None:
    for claim in CLAIMS:
        assert claim.section in SECTIONS and claim.verdict in VERDICTS, claim
        assert claim.says and claim.found and claim.commands, claim
    items = [claim.item for claim in CLAIMS]
    assert len(items) == len(set(items)) and {claim.section for claim in CLAIMS} == set(SECTIONS)


def test_the_page_counts_its_verdicts() -> None:
    holds, in_part, not_, untold = (sum(claim.verdict == verdict for claim in CLAIMS) for verdict in VERDICTS)
    counted = f"Of {len(CLAIMS)} rows {holds} hold, {in_part} hold in part, {not_} do not hold, and {untold} cannot be tested."
    assert counted in (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def test_nothing_of_the_paper_is_without_a_row() -> None:
    items = {claim.item for claim in CLAIMS}
    for name in [*LABELS.values(), *WITHOUT_LABEL]:
        assert any(re.search(rf"(^|, ){re.escape(name)}([a-z]|\b|$|,)", item) for item in items), name
    assert {f"({k})" for k in range(1, 56)} <= items


def test_commands_are_commands() -> None:
    for command in sorted({command for claim in CLAIMS for command in claim.commands}):
        words = shlex.split(command)
        if words[0] == "fedtwin":
            _require_options(words[1:])
        elif words[:3] == ["python", "-m", "pytest"]:
            assert all((ROOT / path).exists() for path in words[3:]) and words[3:], command
        else:
            assert words[:2] == ["python", "-m"], command
            module = ROOT / words[2].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), command
            assert words[2] != "benchmarks.claims" or set(words[3:]) <= set(MEASURES), command


def _require_options(words: list[str]) -> None:
    """What the command line says to arguments that it does not take is an error here."""
    group = typer.main.get_command(app)
    if words == ["--help"]:
        return
    command = group.commands[words[0]]  # type: ignore[attr-defined]
    if hasattr(command, "commands"):
        assert words[1] in command.commands or words[1] == "--help", words
        return
    with command.make_context(words[0], words[1:]) as context:
        names = context.params["names"] if words[0] == "figure" else []
    known = {path.stem.removeprefix("figure_") for path in Path(specs.__file__).parent.glob("figure_*.toml")}
    assert set(names) <= known, words


def test_every_measurement_is_in_a_row() -> None:
    assert {name for claim in CLAIMS for name in claim.measured_by} == set(MEASURES)
    assert {claim.item for claim in CLAIMS} >= set(TABLES)


@pytest.mark.parametrize("item", TABLES)
def test_the_page_quotes_the_tables_behind_the_figures(item: str) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.item == item)
    assert TABLES[item]() in claim.found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in TAKE_LONG else []) for name in MEASURES]
)
def test_the_page_says_what_is_measured(name: str) -> None:
    """Numbers may differ by one and a half in their last digit: other processors round otherwise."""
    rows = [claim for claim in CLAIMS if claim.measured_by and name in claim.measured_by]
    assert any(agrees(MEASURES[name](), claim.found) for claim in rows), [claim.found for claim in rows]


def agrees(measured: str, found: str) -> bool:
    pattern = f"({NUMBER.pattern})".join(map(re.escape, NUMBER.split(measured)))
    match = re.search(pattern, found)
    return match is not None and all(map(near, NUMBER.findall(measured), match.groups()))


def near(measured: str, written: str) -> bool:
    digits = len(written.partition(".")[2])
    a, b = (float(text.replace("−", "-").replace(",", "")) for text in (measured, written))
    return abs(a - b) <= 1.5 * 10.0**-digits


def test_a_number_that_is_not_there_is_found_out() -> None:
    assert agrees("cost 0.4703 (0.4663 … 0.4744), −1,200 J", "about: cost 0.4704 (0.4663 … 0.4744), −1,201 J.")
    assert not agrees("cost 0.4703 (0.4663 … 0.4744)", "cost 0.4713 (0.4663 … 0.4744)")
    assert not agrees("cost 0.4703", "time 0.4703")
