"""The learning rate of a round: what torch's schedulers give, and a pure function of the round."""

from typing import Any

import pytest
import torch

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.learning.rates import (
    other_than_the_schedule,
    past_the_schedule,
    rate_of,
    short_of_the_schedule,
    with_the_rounds_of_boards,
)
from fedtwin.sim import simulate


def training(rounds: int, mode: str = "async", **learning: Any) -> Config:
    settings = {f"learning.{key}": value for key, value in {"learning_rate": 0.3, **learning}.items()}
    return build_config({}, {"run.rounds": rounds, "run.mode": mode, **settings})


def rates(config: Config, rounds: int) -> list[float]:
    return [rate_of(config, round_) for round_ in range(1, rounds + 1)]


def test_a_constant_rate_is_the_rate_itself() -> None:
    assert rates(training(50), 80) == [0.3] * 80


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_schedule_is_that_of_torch(schedule: str) -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    made: Any = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 40)
        if schedule == "cosine"
        else torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, 40)
    )
    expected = []
    for _ in range(40):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        made.step()
    found = rates(training(40, rate_schedule=schedule), 60)
    assert found[:40] == pytest.approx(expected)
    assert found[40:] == [found[39]] * 20 and found[39] > 0.0


def test_it_rises_before_it_falls() -> None:
    found = rates(training(30, rate_schedule="linear", rate_warmup_rounds=10), 30)
    assert found[:10] == pytest.approx([0.03 * k for k in range(1, 11)])
    assert found[10:] == pytest.approx([0.3 * (1 - k / 20) for k in range(20)])
    assert rates(training(30, rate_warmup_rounds=3), 6) == pytest.approx([0.1, 0.2, 0.3, 0.3, 0.3, 0.3])


def test_its_rounds_are_those_of_the_run_unless_they_are_given() -> None:
    run, given = training(60, rate_schedule="cosine"), training(500, rate_schedule="cosine", rate_rounds=60)
    assert rates(run, 70) == rates(given, 70)
    rounds_of_fifteen = training(900, "sync", rate_schedule="cosine")
    assert rates(rounds_of_fifteen, 70) == rates(given, 70)


def test_a_live_fleet_makes_as_many_rounds_as_its_boards_and_a_simulation_as_its_fleet() -> None:
    """Rounds of three make 300 of 900 selections; with others than ``fleet.devices`` only a live run has to do."""
    given = {"run.rounds": 900, "run.mode": "sync", "learning.rate_schedule": "cosine"}
    rounds = {3: 300, 20: 60, 0: 60}
    for boards, expected in rounds.items():
        config = build_config({}, {**given, "live.start_with": boards})
        assert config.rounds_of_the_schedule == 60, "simulated, whatever [live] says"
        assert with_the_rounds_of_boards(config).rounds_of_the_schedule == expected
    small = {"fleet.devices": 4, "fleet.channels": 4, "live.time_scale": 1.0}
    assert build_config({}, {**given, **small}).rounds_of_the_schedule == 225
    few = {"live.start_with": 3}
    for stated in ({"learning.rate_rounds": 70}, {"run.mode": "async"}):
        config = build_config({}, {**given, **few, **stated})
        assert with_the_rounds_of_boards(config).rounds_of_the_schedule == config.rounds_of_the_schedule
    constant = build_config({}, {**given, **few, "learning.rate_schedule": "constant"})
    assert with_the_rounds_of_boards(constant) is constant and with_the_rounds_of_boards(Config()) == Config()


def test_a_run_that_ends_long_before_its_schedule_is_told_of() -> None:
    config = training(500, rate_schedule="cosine", rate_rounds=1000)
    sentence = short_of_the_schedule(config, 500)
    assert sentence is not None and sentence.startswith(
        "The run has 500 of the 1000 rounds of learning.rate_schedule = 'cosine'"
    )
    assert f"the rate falls to {rate_of(config, 500):.2g} and no further" in sentence and sentence.count(". ") == 0
    assert short_of_the_schedule(config, 800) is None and short_of_the_schedule(training(500), 3) is None
    assert (
        other_than_the_schedule(config) == sentence and other_than_the_schedule(training(500, rate_schedule="cosine")) is None
    )
    past = training(500, rate_schedule="cosine", rate_rounds=60)
    assert other_than_the_schedule(past) == past_the_schedule(past, 61) is not None
    rounds_of_fifteen = training(900, "sync", rate_schedule="cosine", rate_rounds=60)
    assert other_than_the_schedule(rounds_of_fifteen) is None


def test_a_simulated_run_tells_when_it_begins_that_its_schedule_is_longer() -> None:
    short = {"run.rounds": 30, "fleet.devices": 6, "fleet.channels": 3, "learning.rate_schedule": "cosine"}
    with pytest.warns(FedtwinWarning, match="The run has 30 of the 100 rounds of learning.rate_schedule"):
        simulate({**short, "learning.rate_rounds": 100, "learning.executor": "serial"}, records=False)


def test_a_round_past_the_schedule_is_told_of() -> None:
    config = training(500, rate_schedule="linear", rate_rounds=60)
    assert past_the_schedule(config, 60) is None and past_the_schedule(training(500), 501) is None
    sentence = past_the_schedule(config, 61)
    assert sentence is not None and sentence.startswith("Round 61 is past the 60 rounds of learning.rate_schedule = 'linear': ")
    assert f"the rate is {rate_of(config, 61):.2g} from here on" in sentence and sentence.count(". ") == 0


def test_a_run_tells_of_it_once() -> None:
    changes = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 40}
    schedule = {"learning.rate_schedule": "cosine", "learning.rate_rounds": 20}
    with pytest.warns(FedtwinWarning) as told:
        simulate(build_config({}, {**changes, **schedule}))
    assert [str(one.message)[:25] for one in told] == ["Round 21 is past the 20 r"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rate_schedule": "step"}, r"^learning\.rate_schedule = 'step' is not allowed: it must be 'constant',"),
        ({"rate_rounds": 9}, r"rate_rounds = 9 is of rate_schedule = 'linear' or 'cosine', not of 'constant'\.$"),
        ({"rate_warmup_rounds": 50}, r"rate_warmup_rounds = 50 must be below 50, the rounds of the rate's schedule\.$"),
        ({"rate_warmup_rounds": 9, "rate_schedule": "linear", "rate_rounds": 8}, r"must be below 8, the rounds"),
        ({"rate_warmup_rounds": -1}, r"^learning\.rate_warmup_rounds = -1 is not allowed"),
        ({"momentum": 0.5}, r"momentum = 0\.5 is of optimiser = 'momentum', not of 'sgd'\.$"),
        ({"optimiser": "momentum", "momentum": 1.0}, r"^learning\.momentum = 1\.0 is not allowed: it must be less than 1\.$"),
        ({"weight_decay": -1e-4}, r"^learning\.weight_decay = -0\.0001 is not allowed"),
        ({"clip_norm": -1}, r"^learning\.clip_norm = -1 is not allowed"),
        ({"optimiser": "mine:descent", "weight_decay": 0.1}, r"weight_decay = 0\.1 is of the optimisers .* your own"),
        ({"augment": "flip"}, r"^learning\.augment = 'flip' is not allowed: it must be 'none' or 'crop-flip'\.$"),
        ({"augment": "crop-flip", "input": "rows"}, r"augment = 'crop-flip' is of images, and input = 'rows'\.$"),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence) as told:
        training(50, **settings)
    assert "\n" not in str(told.value)
