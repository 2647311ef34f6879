import numpy as np
import pytest

from fedtwin.errors import FedtwinError
from fedtwin.experiments.specs.figure import AT_OTHER_WEIGHTS, FIGURES, Profile, Sampling, load_experiment, parse_experiment
from fedtwin.figures.kinds import KINDS
from fedtwin.learning.partition import deal


@pytest.mark.parametrize("figure", FIGURES)
def test_every_committed_experiment_is_valid_and_can_be_drawn(figure: str) -> None:
    experiment = load_experiment(figure)
    assert experiment.figure == figure and experiment.kind in KINDS
    assert len(experiment.configs("quick")) <= len(experiment.configs("full"))


@pytest.mark.parametrize("figure", ["3", "4", "5"])
def test_the_full_profile_is_what_the_docs_promise(figure: str) -> None:
    effort = load_experiment(figure).profiles["full"]
    assert effort.seeds >= 20 and effort.rounds >= 10_000


def test_figures_3_to_5_and_regret_have_the_promised_axes() -> None:
    sweeps = {figure: load_experiment(figure).sweep for figure in FIGURES}
    assert sweeps["3"] is not None and sweeps["3"].values == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert sweeps["4"] is not None and sweeps["4"].values == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert sweeps["5"] is not None and sweeps["5"].values == [1e4, 3e4, 1e5, 3e5]
    assert all(config.objective.min_mean_samples == 2.0 for _, _, config in load_experiment("5").configs("quick"))
    assert load_experiment("regret").profiles["full"].rounds == 1_000_000


@pytest.mark.parametrize("figure", ["6", "7", "8", "9", *AT_OTHER_WEIGHTS])
def test_the_accuracy_figures_state_their_energy_weight_and_differ_only_where_they_say(figure: str) -> None:
    weight, seeds = (0.5, 5) if figure in AT_OTHER_WEIGHTS else (0.1, 10)
    for profile, model, least_seeds in (("quick", "small-cnn", 2), ("full", "resnet18", seeds)):
        configs = [config for _, _, config in load_experiment(figure).configs(profile)]  # type: ignore[arg-type]
        assert {config.objective.energy_weight for config in configs} == {weight}
        assert f"λ_e = {weight}" in load_experiment(figure).y_label
        assert all(config.learning is not None and config.learning.model == model for config in configs)
        assert all(config.averages for config in configs)
        rates = {(c.learning.learning_rate, c.learning.local_epochs) for c in configs if c.learning}
        assert len(rates) == 1, "the same for all schemes"
        assert len({config.run.seed for config in configs}) >= least_seeds


@pytest.mark.parametrize(
    ("profile", "dataset", "images", "partitions"),
    [("full", "cifar-10", 50_000, {"iid", "dirichlet"}), ("quick", "fashion-mnist", 60_000, {"iid"})],
)
def test_the_headline_figure_is_asynchronous_beside_synchronous_and_all_samples_are_owned(
    profile: Profile, dataset: str, images: int, partitions: set[str]
) -> None:
    configs = [config for _, _, config in load_experiment("headline").configs(profile) if config.run.seed == 0]
    trainings = [config.learning for config in configs if config.learning is not None]
    found = [(config.run.mode, learning.partition) for config, learning in zip(configs, trainings, strict=True)]
    assert sorted(found) == sorted((mode, partition) for mode in ("async", "sync") for partition in partitions)
    for config, learning in zip(configs, trainings, strict=True):
        fleet = config.fleet
        assert (fleet.devices, fleet.samples_min, fleet.samples_max, fleet.channels) == (30, 70, 100, 15)
        assert (learning.dataset, learning.optimiser, learning.momentum, learning.weight_decay) == (
            dataset,
            "momentum",
            0.9,
            5e-4,
        )
        assert (learning.rate_schedule, learning.local_epochs, config.averages) == ("cosine", 1, True)
        shares = deal(np.arange(images) % 10, 0, fleet.devices, learning.owned_samples, None)
        assert len(np.unique(np.concatenate(shares))) == images
    assert len({learning.model_dump_json(exclude={"partition"}) for learning in trainings}) == 1, "trained alike"


def test_the_full_headline_is_what_was_asked_for() -> None:
    effort = load_experiment("headline").profiles["full"]
    (config, *_) = [config for _, _, config in load_experiment("headline").configs("full")]
    assert effort.rounds == 24_000 and config.learning is not None and config.learning.model == "resnet18"
    assert (config.learning.learning_rate, config.learning.augment, config.learning.executor) == (0.05, "crop-flip", "cuda")


def test_a_profile_may_have_some_of_the_schemes_unless_others_are_chosen() -> None:
    experiment = load_experiment("headline")
    some = experiment.schemes[:2]
    assert [name for name, _, _ in experiment.configs("quick")] == some
    assert {name for name, _, _ in experiment.configs("full")} == set(experiment.schemes)
    changed = experiment.with_changes(settings={"learning.batch_size": 16})
    assert [name for name, _, _ in changed.configs("quick")] == some
    assert [name for name, _, _ in experiment.with_changes(["Random"]).configs("quick")] == ["Random"]


@pytest.mark.parametrize("figure", AT_OTHER_WEIGHTS)
def test_a_figure_like_another_differs_in_what_it_says(figure: str) -> None:
    usual, other = (load_experiment(name).model_dump() for name in (figure.partition("-")[0], figure))
    assert {key for key in usual if usual[key] != other[key]} == {"figure", "title", "y_label", "profiles", "config"}
    assert other["config"] == usual["config"] | {"objective": {"energy_weight": 0.5}}
    assert other["profiles"]["full"] == usual["profiles"]["full"] | {"seeds": 5, "rounds": 3500}


def test_sampling_begins_and_ends_where_it_says() -> None:
    for spacing in ("even", "ratio"):
        rounds = Sampling.model_validate({"points": 11, "spacing": spacing, "first_round": 10}).rounds(1000)
        assert (rounds[0], rounds[-1], len(rounds)) == (10, 1000, 11) and list(rounds) == sorted(rounds)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("figure = ", "not valid TOML"), ("figure = '3'", "kind"), ("colour = 1", "colour|figure")],
)
def test_a_bad_experiment_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        parse_experiment(text)


def test_an_unknown_figure_is_one_sentence() -> None:
    with pytest.raises(FedtwinError, match="figure '10' is unknown: choose one of 3, 4, 5, regret"):
        load_experiment("10")
