"""Networks, losses and optimisers that remember what ran before are refused, in whichever process they train."""

from pathlib import Path

import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.sim import simulate

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
    return load_config(
        overrides={
            "code.folder": str(folder),
            setting: NAMES[setting],
            "learning.dataset": "digits",
            "learning.executor": executor,
            "learning.workers": 2 if executor == "processes" else 0,
            "learning.evaluate_every_s": 5.0,
            "fleet.devices": 6,
            "fleet.channels": 3,
            "fleet.samples_min": 20,
            "fleet.samples_max": 40,
            "run.rounds": 20,
            "objective.min_mean_samples": 0.0,
        }
    )


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
