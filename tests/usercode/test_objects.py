"""Objects of a script, a module or a notebook: each has a name of its own, and no two codes share one."""

import importlib
import json
import linecache
import operator
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.job import Job, outcome_of, pack, run_packed
from fedtwin.policies import Policy, View
from fedtwin.sim import resume, simulate
from fedtwin.sim.given import configured
from fedtwin.usercode import load_object, name_of_object
from fedtwin.usercode.digest import digest_of
from fedtwin.usercode.loading import HELD
from fedtwin.usercode.values import ValueDigest

MODULE = """from fedtwin import Policy

def score(view, knobs):
    return -view.queue * view.samples

POLICY = Policy(score, power="max")
"""
SCRIPT = """import json, sys
from pathlib import Path
import fedtwin
from helper import SIGN

def score(view, knobs):
    return SIGN * view.queue * view.samples

POLICY = fedtwin.Policy(score, power="max")

def edit(row):
    if row.round == 5:
        Path(__file__).write_text("raise RuntimeError('edited while it ran')\\n")

if {guard}:
    result = fedtwin.simulate({{"run.rounds": 200}}, policy=POLICY, out=sys.argv[1], on_round=edit)
    print(json.dumps([result.config.policy.name, result.identity.hash]))
"""


def run_python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def typed(text: str, file: str, **names: Any) -> dict[str, Any]:
    """Code as a notebook runs it: in no module, with its source where Python looks for that of a cell."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"__name__": "a_notebook", **names}
    exec(compile(text, file, "exec"), names)
    return names


def cell(body: str, file: str = "/nowhere/cell.py", **names: Any) -> Policy:
    return Policy(typed(f"def score(view, knobs):\n    return {body}\n", file, **names)["score"], power="max")


def test_an_object_of_a_module_is_the_named_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("of_a_module")
    given, named = configured(policy=module.POLICY), load_config(overrides={"policy.name": "of_a_module:POLICY"})
    assert given == named and config_hash(given) == config_hash(named)
    result = simulate({"run.rounds": 30}, policy=module.POLICY, out=tmp_path / "run")
    assert (tmp_path / "run" / "code" / "of_a_module.py").read_text() == MODULE
    assert config_hash(load_config(tmp_path / "run" / "config.toml")) == result.identity.hash


def test_an_object_beside_a_toml_is_found_there(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "mine.toml").write_text("[policy]\nname = 'mine:POLICY'\n")
    config = load_config(tmp_path / "mine.toml")
    policy = load_object("policy.name", "mine:POLICY", config.code.folder)
    assert configured(policy=policy) == config and configured(config, policy=policy) == config


def test_a_policy_of_fedtwins_own_has_its_registered_name() -> None:
    from fedtwin.policies import fairness

    assert configured(policy=fairness.POLICY).policy.name == "fairness"


def test_a_script_keeps_itself_and_is_run_again_from_the_folder(tmp_path: Path) -> None:
    """Its file is changed while it runs: what was started counts."""
    script = SCRIPT.format(guard="__name__ == '__main__'")
    (tmp_path / "study.py").write_text(script)
    (tmp_path / "helper.py").write_text("SIGN = -1.0\n")
    said = run_python("study.py", "run", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    name, hash_ = json.loads(said.stdout)
    assert name == "study:POLICY" and "edited" in (tmp_path / "study.py").read_text()
    assert (tmp_path / "run" / "code" / "study.py").read_text() == script
    (tmp_path / "run").rename(tmp_path / "moved")
    again = run_python("-m", "fedtwin", "run", tmp_path / "moved" / "config.toml", "--json", cwd=tmp_path.parent)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == json.loads((tmp_path / "moved" / "summary.json").read_text())
    assert json.loads(again.stdout)["config_hash"] == hash_


def test_a_script_that_starts_runs_when_it_is_imported_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(SCRIPT.format(guard="True"))
    (tmp_path / "helper.py").write_text("SIGN = -1.0\n")
    assert run_python("study.py", "run", cwd=tmp_path).returncode == 0
    again = run_python("-m", "fedtwin", "run", tmp_path / "run" / "config.toml", "--out", "second", cwd=tmp_path)
    assert again.returncode == 2 and "if __name__ == '__main__'" in again.stderr, again.stderr
    assert not (tmp_path / "second").exists()


def test_objects_that_differ_in_what_they_do_differ_in_name_and_hash() -> None:
    """Also where all names and constants are the same, as in cells of a notebook."""
    bodies = [
        "view.queue + view.samples",
        "view.queue - view.samples",
        "(lambda: view.queue + 1)()",
        "(lambda: view.queue - 1)()",
    ]
    configs = [configured(policy=cell(body)) for body in bodies]
    assert len({config.policy.name for config in configs}) == len({config_hash(config) for config in configs}) == len(bodies)
    again = configured(policy=cell(bodies[0]))
    assert again == configs[0] and config_hash(again) == config_hash(configs[0])
    assert configs[0].policy.name.startswith("object:score-")


def test_closures_made_in_a_loop_are_told_apart_and_run() -> None:
    def make(weight: float) -> Policy:
        return Policy(lambda view, knobs: weight * view.queue + knobs.v * view.mean_cost, power="max")

    results = [simulate({"run.rounds": 60}, policy=make(weight)) for weight in (-1.0, 1.0, -1.0)]
    assert results[0].identity.hash != results[1].identity.hash and results[0].identity == results[2].identity
    assert results[0].rounds.equals(results[2].rounds) and not results[0].rounds.equals(results[1].rounds)


def test_the_helpers_of_a_notebook_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions and constants of other cells, and modules that a cell imported."""
    (tmp_path / "beside_a_notebook.py").write_text("def rate(view):\n    return view.queue * FACTOR\nFACTOR = 2.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("beside_a_notebook")
    helper = typed("def helper(view):\n    return view.queue + 1\n", "/nowhere/helper.py")["helper"]
    other = typed("def helper(view):\n    return view.queue - 1\n", "/nowhere/helper.py")["helper"]
    digests = [digest_of(cell("helper(view)", helper=one)) for one in (helper, other)]
    digests += [digest_of(cell("LIMIT", LIMIT=value)) for value in (1.0, 2.0)]
    digests.append(digest_of(cell("lib.rate(view)", lib=module)))
    monkeypatch.setattr(module, "FACTOR", 3.0)
    digests.append(digest_of(cell("lib.rate(view)", lib=module)))
    assert len(set(digests)) == len(digests)


def test_code_of_a_file_that_belongs_to_no_module_counts(tmp_path: Path) -> None:
    """As a script that a notebook runs in its own namespace, edited and run again."""
    digests = []
    for sign in "+-":
        (tmp_path / "part.py").write_text(f"def score(view, knobs):\n    return view.queue {sign} view.samples\n")
        names = typed((tmp_path / "part.py").read_text(), str(tmp_path / "part.py"))
        digests.append(digest_of(Policy(names["score"], power="max")))
    assert digests[0] != digests[1]


@pytest.mark.slow
def test_an_object_of_a_notebook_is_compiled_if_its_source_is_found_and_runs_readably_if_not() -> None:
    compiled = simulate({"run.rounds": 60, "run.engine": "compiled"}, policy=cell("-view.queue"))
    assert compiled.rounds.equals(simulate({"run.rounds": 60, "run.engine": "readable"}, policy=cell("-view.queue")).rounds)
    prompt = cell("-view.queue", file="<stdin>")
    linecache.cache.pop("<stdin>")
    with pytest.raises(FedtwinError, match=r"cannot be compiled \(in score: its source cannot be read"):
        simulate({"run.rounds": 60, "run.engine": "compiled"}, policy=prompt)
    assert simulate({"run.rounds": 60}, policy=prompt).rounds.equals(compiled.rounds)


def test_a_folder_without_the_source_is_refused_and_not_left_behind(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"'object:score-[0-9a-f]{12}': the folder of a run keeps the source .*mine:POLICY"):
        simulate({"run.rounds": 30}, policy=cell("-view.queue"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_process_does_not_have_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured({"run.rounds": 20}, policy=cell("-view.queue"))
    packed = pack(Job(config))
    assert outcome_of(run_packed(packed)).failed is None
    for name in list(HELD):
        monkeypatch.delitem(HELD, name)
    assert "is an object of another process, which cannot be had here" in str(outcome_of(run_packed(packed)).failed)


def test_an_object_that_keeps_a_state_is_refused() -> None:
    seen: list[int] = []

    def score(view: View, _: object) -> float:
        seen.append(view.round)
        return -view.queue

    with pytest.raises(FedtwinError, match=r"'object:score-.* changes something of its own while it runs"):
        simulate({"run.rounds": 30}, policy=Policy(score, power="max"))


def test_the_name_leads_to_the_very_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal one elsewhere, or one that took its place, is not it."""
    (tmp_path / "taken_place.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("taken_place")
    first = module.POLICY
    module.POLICY = Policy(lambda view, _: view.queue, power="max")  # type: ignore[attr-defined]
    assert name_of_object("policy.name", module.POLICY)[0] == "taken_place:POLICY"
    assert name_of_object("policy.name", first)[0].startswith("object:")


def test_a_resumed_run_of_an_object_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "to_resume.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module("to_resume").POLICY
    whole = simulate({"run.rounds": 100}, policy=policy)

    def stop(row: Any) -> None:
        if row.round == 50:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        simulate({"run.rounds": 100}, policy=policy, out=tmp_path / "cut", on_round=stop)
    resumed = resume(tmp_path / "cut")
    assert resumed.summary == whole.summary and resumed.identity == whole.identity


TWO = {
    "signs on one line": [lambda view: view.mean_cost + view.queue, lambda view: view.mean_cost - view.queue],
    "builtins": [partial(max, 1.0), partial(min, 1.0)],
    "functions of a library": [operator.add, operator.sub],
    "methods of types": [list.__getitem__, list.__contains__],
    "methods of dictionaries": [{"a": 1.0}.get, {"a": 2.0}.get],
    "operations on arrays": [np.minimum, np.maximum],
}


@pytest.mark.parametrize("pair", TWO.values(), ids=TWO)
def test_what_differs_in_one_file_or_in_a_library_differs_in_its_digest(pair: list[Any]) -> None:
    digests = [ValueDigest(), ValueDigest()]
    for digest, value in zip(digests, pair, strict=True):
        digest.add(value)
    assert digests[0].hexdigest() != digests[1].hexdigest()


LOOP = """import fedtwin
POLICIES = {sign: fedtwin.Policy(lambda view, knobs, sign=sign: sign * view.queue, power="optimal") for sign in (1.0, -1.0)}
for key, policy in POLICIES.items():
    chosen = policy
LAST = policy
ONCE = POLICIES[1.0]
"""


def test_a_name_that_a_loop_gave_is_not_the_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "looped.py").write_text(LOOP, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    looped = importlib.import_module("looped")
    assert name_of_object("policy.name", looped.POLICIES[1.0])[0] == "looped:ONCE"
    assert name_of_object("policy.name", looped.policy)[0] == "looped:LAST"
    del looped.LAST
    assert name_of_object("policy.name", looped.policy)[0].startswith("object:"), "neither looped:policy nor looped:chosen"
