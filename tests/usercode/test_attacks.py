"""Ways in which two codes could pass for one, or one code for none: each was found by somebody who looked for them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedtwin.compiling import is_ours, why_not
from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.policies import policy_of
from fedtwin.sim import simulate
from fedtwin.sim.fast import steps

HEAD = "import os\nfrom fedtwin.policies import Policy\nVALUE = float(os.environ['A_VALUE'])\n"
SEEN = {
    "class attribute": "class C:\n    w = VALUE\n    def __call__(self, view, knobs):\n        return self.w\nscore = C()\n",
    "global in __call__": "class C:\n    def __call__(self, view, knobs):\n        return VALUE\nscore = C()\n",
    "method": "class C:\n    w = VALUE\n    def go(self, view, knobs):\n        return self.w\nscore = C().go\n",
    "slots": "class C:\n    __slots__ = ('w',)\n    def __init__(self):\n        self.w = VALUE\n"
    "    def __call__(self, view, knobs):\n        return self.w\nscore = C()\n",
    "function attribute": "def score(view, knobs):\n    return score.w\nscore.w = VALUE\n",
    "list subclass": "class L(list):\n    pass\nHELD = L()\nHELD.w = VALUE\ndef score(view, knobs):\n    return HELD.w\n",
    "exec": "exec('def made(view, knobs):\\n    return VALUE\\n')\ndef score(view, knobs):\n    return made(view, knobs)\n",
    "fraction": "from fractions import Fraction\nF = Fraction(VALUE)\ndef score(view, knobs):\n    return float(F)\n",
    "namespace": "from types import SimpleNamespace\nS = SimpleNamespace(w=VALUE)\ndef score(view, knobs):\n    return S.w\n",
    "bytearray": "B = bytearray(str(VALUE), 'ascii')\ndef score(view, knobs):\n    return float(B)\n",
    "submodule": "import lib.inner\ndef score(view, knobs):\n    return lib.inner.W\n",
    "import inside": "import lib.inner\ndef score(view, knobs):\n    import helper\n    return helper.W\n",
    "closure": "def make(w):\n    def score(view, knobs):\n        return w\n    return score\nscore = make(VALUE)\n",
    "borrowed name": "import functools\nfrom fedtwin.policies.cu_ucb import score as base\n"
    "@functools.wraps(base)\ndef score(view, knobs):\n    return VALUE * view.queue ** 3\n",
}
BODY = "def score(view, knobs):\n"
LOOK = "    return VALUE * view.queue\n"
SEEN |= {
    f"behind {name}": f"{imports}{decorator}\n{BODY}{LOOK}"
    for name, imports, decorator in (
        ("errstate", "import numpy as np\n", "@np.errstate(divide='ignore')"),
        ("no_grad", "import torch\n", "@torch.no_grad()"),
        ("singledispatch", "import functools\n", "@functools.singledispatch"),
        ("vectorize", "import numpy as np\n", "@np.vectorize"),
        ("vectorize of numba", "import numba\n", "@numba.vectorize"),
        ("guvectorize of numba", "import numba\n", "@numba.guvectorize('(n),(n)->(n)')"),
    )
}
SEEN |= {
    "context of a library": "import contextlib\n@contextlib.contextmanager\ndef held():\n    yield VALUE\n"
    f"{BODY}    with held() as w:\n        return w\n",
    "dispatched method": "import functools\nclass C:\n    @functools.singledispatchmethod\n    def go(self, view, knobs):\n"
    "        return VALUE\nscore = C().go\n",
    **{
        f"inside: {line}": f"{BODY}    {line}\n    return {what}\n"
        for line, what in (
            ("import lib.inner", "lib.inner.W"),
            ("import lib.inner as s", "s.W"),
            ("from lib.inner import W", "W"),
            ("from lib import inner", "inner.W"),
            ("from . import helper", "helper.W"),
            ("from .helper import W", "W"),
            ("from .lib.inner import W as other", "other"),
            ("from lib.again import again", "again()"),
        )
    },
    **{
        f"module in {name}": f"import helper\n{text}"
        for name, text in (
            ("a closure", f"def make(c):\n    {BODY}        return c.W\n    return score\nscore = make(helper)\n"),
            ("a default", "def score(view, knobs, c=helper):\n    return c.W\n"),
            ("partial", "import functools\ndef of(c, view, knobs):\n    return c.W\nscore = functools.partial(of, helper)\n"),
            (
                "an attribute",
                "class C:\n    def __init__(self):\n        self.c = helper\n    def __call__(self, view, knobs):\n"
                "        return self.c.W\nscore = C()\n",
            ),
            ("a list", f"L = [helper]\n{BODY}    return L[0].W\n"),
            ("getattr", f"{BODY}    return getattr(helper, 'W')\n"),
            ("vars", f"{BODY}    return vars(helper)['W']\n"),
        )
    },
    "module that computes its names": f"import computed\n{BODY}    return computed.anything\n",
    "globals": f"{BODY}    return globals()['VALUE']\n",
    "eval": f"{BODY}    return eval('VALUE')\n",
    "private slot": "class C:\n    __slots__ = ('__w',)\n    def __init__(self, w):\n        self.__w = w\n"
    "    def __call__(self, view, knobs):\n        return self.__w\nscore = C(VALUE)\n",
    "a number that shows itself rounded": "class S(float):\n    def __repr__(self):\n        return 'S'\nW = S(VALUE)\n"
    f"{BODY}    return W\n",
    "a word that shows itself otherwise": "class S(str):\n    def __repr__(self):\n        return 'S'\nW = S(VALUE)\n"
    f"{BODY}    return float(W)\n",
    "a decimal that shows itself otherwise": "import decimal\nclass S(decimal.Decimal):\n    def __repr__(self):\n"
    f"        return 'S'\nW = S(VALUE)\n{BODY}    return float(W)\n",
    "a mask": f"import numpy as np\nM = np.ma.array([1.0, 2.0], mask=[VALUE == 1.0, False])\n{BODY}    return M.sum()\n",
    "a list that iterates otherwise": "class L(list):\n    def __iter__(self):\n        return iter(())\nW = L([VALUE])\n"
    f"{BODY}    return W[0]\n",
    "a dictionary that iterates otherwise": "class D(dict):\n    def items(self):\n        return []\nW = D(w=VALUE)\n"
    f"{BODY}    return W['w']\n",
    "a default of a dictionary": "from collections import defaultdict\ndef make(w):\n    return lambda: w\n"
    f"W = defaultdict(make(VALUE))\n{BODY}    return W['w']\n",
    "an attribute that looks like one of abc": "class C:\n    _abc_w = VALUE\n    def __call__(self, view, knobs):\n"
    "        return self._abc_w\nscore = C()\n",
    "a flag without a name": "import enum\nclass Opt(enum.Flag):\n    SLOW = 1\n    FAIR = 2\nNONE = Opt(0)\n"
    f"{BODY}    return VALUE if NONE is Opt(0) else 0.0\n",
    "a function in a set": "def make(w):\n    return lambda view: w\nR = {make(VALUE)}\n"
    f"{BODY}    return sum(f(view) for f in R)\n",
    **{
        f"module handed on {how}": f"import helper\n{text}"
        for how, text in (
            ("to a function", f"def of(c, view):\n    return c.W\n{BODY}    return of(helper, view)\n"),
            ("by a function", f"def here():\n    return helper\n{BODY}    return here().W\n"),
            ("from a package", f"import lib.inner\ndef of(c):\n    return c.W\n{BODY}    return of(lib.inner)\n"),
            ("inside a list", f"{BODY}    return [helper][0].W\n"),
        )
    },
    **{
        f"held by {what}": f"{imports}\nH = {what}\n{BODY}    return {use}\n"
        for what, imports, use in (
            ("array('d', [VALUE])", "from array import array", "H[0]"),
            ("MappingProxyType({'w': VALUE})", "from types import MappingProxyType", "H['w']"),
            ("ChainMap({}, {'w': VALUE})", "from collections import ChainMap", "H['w']"),
            ("UserDict(w=VALUE)", "from collections import UserDict", "H['w']"),
            ("slice(int(VALUE))", "", "float(len((1, 2, 3)[H]))"),
            ("timedelta(VALUE)", "from datetime import timedelta", "H.total_seconds()"),
            ("itemgetter(int(VALUE))", "from operator import itemgetter", "float(H((1, 2, 3)))"),
            ("deque((1, 2), int(VALUE) + 1)", "from collections import deque", "float(H.maxlen)"),
            ("T([VALUE])", "import torch\nclass T(torch.Tensor):\n    pass", "float(H[0])"),
            ("M()", "from pydantic import BaseModel\nclass M(BaseModel):\n    w: float = VALUE", "H.w"),
            ("M", "from pydantic import BaseModel\nclass M(BaseModel):\n    w: float = VALUE", "H().w"),
        )
    },
    "sets that lead back to themselves": "R, Q = set(), set()\ndef one(view):\n    return VALUE * len(R)\n"
    "def two(view):\n    return len(Q) + len(R)\nR |= {one, two}\nQ |= {two}\n"
    f"{BODY}    return sum(f(view) for f in R)\n",
}


def configured(folder: Path, text: str, **more: str) -> Config:
    (folder / "mine.py").write_text(f"{HEAD}{text}POLICY = Policy(score, power='max')\n")
    for name, other in more.items():
        (folder / f"{name}.py").write_text(other)
    (folder / "mine.toml").write_text("[policy]\nname = 'mine:POLICY'\n[run]\nrounds = 40\n")
    return load_config(folder / "mine.toml")


def helpers(folder: Path) -> None:
    value = "import os\nW = float(os.environ['A_VALUE'])\n"
    (folder / "lib").mkdir(exist_ok=True)
    (folder / "lib" / "inner.py").write_text(value)
    (folder / "helper.py").write_text(value)
    (folder / "lib" / "again.py").write_text(value + "def again():\n    return W\n")
    (folder / "computed.py").write_text(value + "def __getattr__(name):\n    return W\n")


@pytest.mark.parametrize("text", SEEN.values(), ids=SEEN.keys())
def test_values_from_outside_are_seen_wherever_they_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    found: list[str] = []
    for value in ("1", "2", "1"):
        folder = tmp_path / f"at{len(found)}"
        folder.mkdir()
        helpers(folder)
        monkeypatch.setenv("A_VALUE", value)
        config = configured(folder, text)
        if "import helper" in text:
            simulate(config, records=False)
        found.append(config_hash(config))
    assert found[0] != found[1] and found[0] == found[2]


def test_a_function_with_a_borrowed_name_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    score: Any = policy_of(configured(tmp_path, SEEN["borrowed name"])).score
    assert score.__module__ == "fedtwin.policies.cu_ucb" and not is_ours(score)
    assert "**" in str(why_not(score, steps.score_of_policy))


def test_a_folder_of_modules_is_the_tomls_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another one of that name lies on Python's path."""
    monkeypatch.setenv("A_VALUE", "1")
    for name, sign in (("here", "-"), ("elsewhere", "+")):
        (tmp_path / name / "parts").mkdir(parents=True)
        (tmp_path / name / "parts" / "rates.py").write_text(f"def rate(view):\n    return {sign}view.queue\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    config = configured(tmp_path / "here", "from parts import rates\ndef score(view, knobs):\n    return rates.rate(view)\n")
    assert policy_of(config).score.__globals__["rates"].__file__ == str(tmp_path / "here" / "parts" / "rates.py")
    first = config_hash(config)
    simulate(config, out=tmp_path / "run")
    (tmp_path / "here" / "parts" / "rates.py").write_text("def rate(view):\n    return 0.0\n")
    assert config_hash(load_config(tmp_path / "run" / "config.toml")) == first
    assert config_hash(load_config(tmp_path / "here" / "mine.toml")) != first


def test_two_modules_of_one_name_both_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "a_toolbox.py").write_text("import a_twin\ndef tool(x):\n    return a_twin.sign(x)\n")
    monkeypatch.syspath_prepend(tmp_path / "path")
    text = "import a_toolbox, a_twin\ndef score(view, knobs):\n    return a_toolbox.tool(view.queue) * a_twin.ONE\n"
    found = []
    for sign in "-+":
        (tmp_path / "path" / "a_twin.py").write_text(f"def sign(x):\n    return {sign}x\n")
        for name in ("a_toolbox", "a_twin"):
            sys.modules.pop(name, None)
        found.append(config_hash(configured(tmp_path, text, a_twin="ONE = 1.0\n")))
    assert found[0] != found[1]


STATEFUL = {
    "array": "from array import array\nA = array('d', [0.0])\n"
    "def score(view, knobs):\n    A[0] = view.round\n    return -view.queue\n",
    "chain map": "from collections import ChainMap\nA = ChainMap()\n"
    "def score(view, knobs):\n    A[0] = view.round\n    return 1.0\n",
    "dictionary": "SEEN = {}\ndef score(view, knobs):\n    SEEN[view.device] = view.round\n    return -view.queue\n",
    "global": "N = 0\ndef score(view, knobs):\n    global N\n    N += 1\n    return -view.queue\n",
    "object": "class C:\n    n = 0\n    def __call__(self, view, knobs):\n        self.n += 1\n        return 1\nscore = C()\n",
}


@pytest.mark.parametrize("text", STATEFUL.values(), ids=STATEFUL.keys())
def test_a_policy_that_keeps_a_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    with pytest.raises(FedtwinError, match=r"'mine:POLICY' changes something of its own while it runs"):
        simulate(configured(tmp_path, text))


@pytest.mark.parametrize("chance", ["random.random()", "time.perf_counter()", "next(COUNT)"])
def test_a_policy_of_chance_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chance: str) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    text = f"import itertools, random, time\nCOUNT = itertools.count()\ndef score(view, knobs):\n    return {chance}\n"
    with pytest.raises(FedtwinError, match=r"'mine:POLICY' gives device \d+ two scores in round 1"):
        simulate(configured(tmp_path, text))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_sources_in_other_encodings_are_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    configured(tmp_path, "")
    text = f"# -*- coding: {encoding} -*-\n{HEAD}NAME = 'Ünïcode'\ndef score(view, knobs):\n    return view.queue\n"
    (tmp_path / "mine.py").write_bytes(f"{text}POLICY = Policy(score, power='max')\n".encode(encoding))
    config = load_config(tmp_path / "mine.toml")
    assert config_hash(config) and why_not(policy_of(config).score, steps.score_of_policy) is None


ODD = {
    "writable memory": "M = memoryview(bytearray(b'ab'))\ndef score(view, knobs):\n    return float(M[0])\n",
    "import that exits": "DEBUG = False\ndef score(view, knobs):\n    if DEBUG:\n        import exits\n    return view.queue\n",
    "flags in combination": "import enum\nclass Opt(enum.Flag):\n    FAIR = 1\n    CHEAP = 2\n"
    "def score(view, knobs):\n    return view.queue if Opt.FAIR | Opt.CHEAP and ~Opt.FAIR else 0.0\n",
    "cached property": "import functools\nclass C:\n    @functools.cached_property\n"
    "    def w(self):\n        return 2.0\nHELD = C()\n"
    "def score(view, knobs):\n    return HELD.w * view.queue\n",
    "huge int": "N = 10**5000\ndef score(view, knobs):\n    return float(N > 1)\n",
    "mock": "from unittest.mock import MagicMock\nM = MagicMock()\ndef score(view, knobs):\n    return float(M is not None)\n",
    "evil attributes": "class E:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\nE = E()\n"
    "def score(view, knobs):\n    return float(E is not None)\n",
    "module is no name": "def score(view, knobs):\n    return view.queue\nscore.__module__ = 3\n",
    "long sum": f"def score(view, knobs):\n    return view.queue{' + 1.0' * 700}\n",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_odd_code_runs_or_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    config = configured(tmp_path, text, exits="import sys\nsys.exit(0)\n")
    assert simulate(config, records=False).summary.rounds == 40


def test_libraries_of_another_environment_are_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By PYTHONPATH or a .pth file; they had been walked through as if the user had written them."""
    monkeypatch.setenv("A_VALUE", "1")
    library = tmp_path / "env" / "lib" / "site-packages"
    (library / "a_library").mkdir(parents=True)
    deep = "DEEP = []\nfor _ in range(50_000):\n    DEEP = [DEEP]\ndef depth():\n    return float(len(DEEP))\n"
    (library / "a_library" / "__init__.py").write_text(deep)
    monkeypatch.syspath_prepend(library)
    text = "import a_library\ndef score(view, knobs):\n    return a_library.depth()\n"
    assert simulate(configured(tmp_path, text), records=False).summary.rounds == 40


def test_a_value_that_cannot_be_looked_at_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    text = "from unittest.mock import Mock\nM = Mock(spec=dict)\ndef score(view, knobs):\n    return float(M is not None)\n"
    with pytest.raises(FedtwinError, match="holds a value that cannot be looked at: AttributeError"):
        simulate(configured(tmp_path, text))


UNSTEADY = {
    "pydantic": "from pydantic import BaseModel\nclass Cfg(BaseModel):\n    w: float = 2.0\nCFG = Cfg()\n"
    "def score(view, knobs):\n    return CFG.w * view.queue\n",
    "dataclass of pydantic": "from pydantic.dataclasses import dataclass\n@dataclass\nclass Cfg:\n    w: float = 2.0\n"
    "CFG = Cfg()\n"
    "def score(view, knobs):\n    return CFG.w * view.queue\n",
    "dispatch by an abstract class": "import functools, numbers\n@functools.singledispatch\ndef w(x):\n    return 1.0\n"
    "@w.register(numbers.Real)\ndef _(x):\n    return 2.0\ndef score(view, knobs):\n    return w(view.queue) * view.queue\n",
    "place of the file": "import logging\nfrom pathlib import Path\ndef score(view, knobs):\n"
    "    logging.getLogger(__name__).debug('%s', Path(__file__).parent)\n    return view.queue\n",
}


@pytest.mark.parametrize("text", UNSTEADY.values(), ids=UNSTEADY.keys())
def test_the_digest_is_the_same_in_every_process_and_place(tmp_path: Path, text: str) -> None:
    program = (
        "import sys\nfor name in sys.argv[2:]:\n    __import__(name)\nfrom fedtwin.config import config_hash, load_config\n"
        "print(config_hash(load_config(sys.argv[1])))"
    )
    found = set()
    for place, before in (("one", ()), ("other", ("pandas", "torch")), ("other", ())):
        (tmp_path / place).mkdir(exist_ok=True)
        configured(tmp_path / place, text)
        command = [sys.executable, "-c", program, str(tmp_path / place / "mine.toml"), *before]
        environment = {**os.environ, "A_VALUE": "1"}
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_all_of_a_package_beside_a_toml_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("__all__ = ['rates']\n")
    (tmp_path / "parts" / "rates.py").write_text("def rate(view):\n    return -view.queue\n")
    config = configured(tmp_path, "from parts import *\ndef score(view, knobs):\n    return rates.rate(view)\n")
    assert simulate(config, records=False).summary.rounds == 40


def test_values_nested_too_deeply_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_VALUE", "1")
    text = "DEEP = []\nfor _ in range(50_000):\n    DEEP = [DEEP]\ndef score(view, knobs):\n    return float(len(DEEP))\n"
    with pytest.raises(FedtwinError, match="nested too deeply"):
        simulate(configured(tmp_path, text))
