"""What remembers what ran before is refused, in whichever process it trains, and wherever its memory lies."""

import math
from pathlib import Path

import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.policies import policy_of
from fedtwin.sim import simulate
from fedtwin.usercode import Questions
from tests.learning.small_runs import SMALL

IMPORTS = "import torch\nfrom torch import nn\nfrom torch.nn.functional import cross_entropy\nN = 0\n\n\n"
NET = """class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        {counts}
        return self.last(x.flatten(1)){used}
"""
COUNTS = "global N; N += 1"
NUMBER = {
    "learning.model": NET.format(counts=COUNTS, used=" * WORTH"),
    "learning.loss": f"def loss(outputs, targets):\n    {COUNTS}\n"
    "    return cross_entropy(outputs, targets, reduction='none') * WORTH\n",
    "learning.optimiser": f"def step(parameters, rate):\n    {COUNTS}\n    return torch.optim.SGD(parameters, rate * WORTH)\n",
}
"""What is counted comes to be worth something, from the first step on or from a late one."""
NAMES = {"learning.model": "mine:Net", "learning.loss": "mine:loss", "learning.optimiser": "mine:step"}


def training(folder: Path, setting: str, text: str, executor: str) -> Config:
    (folder / "mine.py").write_text(text)
    workers = {"learning.executor": executor, "learning.workers": 2 if executor == "processes" else 0}
    return load_config(overrides={**SMALL, **workers, "code.folder": str(folder), setting: NAMES[setting]})


@pytest.mark.parametrize("executor", ["serial", "processes"])
@pytest.mark.parametrize("setting", NUMBER)
def test_what_remembers_is_refused_while_it_runs(tmp_path: Path, setting: str, executor: str) -> None:
    text = IMPORTS + NUMBER[setting].replace("WORTH", "(2.0 if N > 40 else 1.0)")
    with pytest.raises(FedtwinError, match=rf"{setting} = 'mine:\w+' changes something of its own while it runs"):
        simulate(training(tmp_path, setting, text, executor), records=False)


@pytest.mark.parametrize("setting", NUMBER)
def test_what_remembers_from_the_start_is_refused_before_it_runs(tmp_path: Path, setting: str) -> None:
    text = IMPORTS + NUMBER[setting].replace("WORTH", "(1.0 + 1e-3 * N)")
    with pytest.raises(FedtwinError, match=rf"^{setting} = 'mine:\w+' gives other numbers when it is trained again"):
        simulate(training(tmp_path, setting, text, "serial"), records=False)


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_a_network_that_remembers_nothing_trains(tmp_path: Path, executor: str) -> None:
    text = IMPORTS + NET.format(counts="pass", used="")
    assert simulate(training(tmp_path, "learning.model", text, executor), records=False).summary.rounds == 20


MEMORIES = {
    "cache": "@functools.cache\ndef memory():\n    return {}\n",
    "thread": "A = threading.local()\nA.all = {}\ndef memory():\n    return A.all\n",
    "context": "A = contextvars.ContextVar('A', default={})\ndef memory():\n    return A.get()\n",
    "sentence": "def memory():\n    return Of(lambda n: eval(memory.__doc__ or '{}')[n], write)\n"
    "def write(n, value):\n    memory.__doc__ = repr({**eval(memory.__doc__ or '{}'), n: value})\n",
}
"""Where the digest of the code does not look."""
POLICY = """
import collections, contextvars, functools, threading
from typing import NamedTuple
from fedtwin.policies import Policy


class Of:
    def __init__(self, read, write):
        self.read, self.write = read, write

    def get(self, n, other):
        try:
            return self.read(n)
        except KeyError:
            return other

    def __setitem__(self, n, value):
        self.write(n, value)


MEMORY
def largest(n, value):
    new = max(memory().get(n, 0.0), value)
    memory()[n] = new
    return new


class State(NamedTuple):
    most: float = 0.0


def score(view, knobs):
    return view.mean_cost - WORTH


def observe(state, news, knobs):
    return State(largest(0, float(news.round)))


@functools.cache
def seldom(device):
    return device / 7.0


POLICY = Policy(score, power="max")
OBSERVES = Policy(score, power="max", state=State, observe=observe)
"""
REMEMBERS = (
    r"^policy\.name = 'mine:{}' answers otherwise when it is asked again of device \d+ in round \d+, so its decisions depend"
)


def choosing(folder: Path, name: str, memory: str, worth: str) -> None:
    (folder / "mine.py").write_text(POLICY.replace("MEMORY", memory).replace("WORTH", worth))
    overrides = {"policy.name": f"mine:{name}", "code.folder": str(folder), "run.rounds": 60, "run.engine": "readable"}
    simulate(load_config(overrides=overrides), records=False)


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES.keys())
def test_a_policy_that_remembers_is_refused_wherever_its_memory_lies(tmp_path: Path, memory: str) -> None:
    with pytest.raises(FedtwinError, match=REMEMBERS.format("POLICY")):
        choosing(tmp_path, "POLICY", memory, "largest(view.device, view.queue)")


def test_an_observe_that_remembers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=REMEMBERS.format("OBSERVES")):
        choosing(tmp_path, "OBSERVES", MEMORIES["cache"], "view.queue")


def test_memoised_chance_in_a_policy_is_refused(tmp_path: Path) -> None:
    drawn = "import random\n@functools.cache\ndef drawn(n):\n    return random.random()\n"
    with pytest.raises(FedtwinError, match=REMEMBERS.format("POLICY")):
        choosing(tmp_path, "POLICY", drawn + MEMORIES["cache"], "drawn(view.device)")


def test_a_cache_of_what_depends_on_arguments_only_is_no_memory(tmp_path: Path) -> None:
    choosing(tmp_path, "POLICY", MEMORIES["cache"], "(view.queue + seldom(view.device))")


def test_questions_are_kept_of_several_devices_and_then_seldom() -> None:
    questions = Questions("policy.name = 'mine:POLICY'", lambda: 0.0)
    kept = [number for number in range(1, 1001) if questions.wants(number % 20)]
    assert kept == [*range(1, 18), 34, 68, 136, 272, 544]


def test_of_fedtwins_own_code_none_are_kept() -> None:
    questions = Questions("policy.name = 'CU-UCB'", policy_of(Config()).score)
    assert not any(questions.wants(device) for device in range(100))


def test_a_nan_is_the_same_answer_and_a_zero_of_another_sign_is_not() -> None:
    answers = iter([math.nan, -0.0])
    questions = Questions("policy.name = 'mine:POLICY'", lambda: 0.0)
    questions.keep("of device 0 in round 1", lambda: next(answers), math.nan)
    assert questions.answered_otherwise() is None
    questions = Questions("policy.name = 'mine:POLICY'", lambda: 0.0)
    questions.keep("of device 3 in round 7", lambda: next(answers), 0.0)
    assert questions.answered_otherwise() == "of device 3 in round 7"
