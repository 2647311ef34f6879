from functools import partial

import pytest

from fedtwin.config import Config
from fedtwin.coordinator import Coordinator, Now
from fedtwin.formulas.power import optimal_plan
from fedtwin.formulas.terms import terms_of
from fedtwin.policies import Knobs, load_policy
from fedtwin.prediction import predict
from fedtwin.twin import new_twin
from fedtwin.twin.update import Offer

KNOBS = Knobs(v=1e5, bonus_scale=0.0, seed=0, min_mean_samples=1.0)


def offer(cost: float = 0.4) -> Offer:
    return Offer(1e-12, 2e9, 0.2, cost, 0.5, 0.3)


def coordinator(name: str = "cu-ucb", *, on_selection: bool = True, ranks: list[int] | None = None) -> Coordinator:
    twin = new_twin([80, 80, 80], 1.0)
    return Coordinator(
        twin,
        load_policy(name),
        KNOBS,
        ranks or [2, 0, 1],
        policy_name=name,
        learn_on_selection=on_selection,
        predict=partial(predict, optimal_plan, terms_of(Config())),
    )


def chosen(server: Coordinator) -> int:
    decision = server.choose(Now(0.0))
    assert decision is not None
    return decision.device


def test_ties_go_to_the_smallest_rank() -> None:
    server = coordinator()
    server.open_round()
    assert [chosen(server) for _ in range(3)] == [1, 2, 0]
    assert server.choose(Now(0.0)) is None, "everybody was asked"


def test_a_decline_passes_the_round_on_and_changes_neither_counts_nor_queue() -> None:
    server = coordinator()
    server.open_round()
    assert chosen(server) == 1
    server.decline(1, 1e-15, 1e9, at_s=0.0)
    known = server.twin.devices[1]
    assert (known.selections, known.observations, known.declines, known.status) == (0, 0, 1, "idle")
    assert chosen(server) == 2
    server.accept(2, offer(), at_s=0.0)
    server.open_round()
    assert chosen(server) == 1, "asked again in the next round, its queue has grown"


def test_a_device_in_flight_is_not_asked_until_its_upload() -> None:
    server = coordinator()
    server.open_round()
    server.accept(chosen(server), offer(), at_s=0.0)
    server.open_round()
    assert [chosen(server), chosen(server)] == [2, 0] and server.choose(Now(0.0)) is None
    server.report(1, 0.4, 0.2, at_s=1.0, time_s=0.5, energy_j=0.3)
    server.open_round()
    assert 1 in [chosen(server) for _ in range(3)]


@pytest.mark.parametrize("on_selection", [True, False])
def test_when_the_cost_is_learned(on_selection: bool) -> None:
    server = coordinator(on_selection=on_selection)
    server.open_round()
    server.accept(1, offer(0.7), at_s=0.0)
    assert server.twin.devices[1].observations == (1 if on_selection else 0)
    assert server.twin.devices[1].selections == 1
    server.report(1, 0.7, 0.2, at_s=1.0, time_s=0.5, energy_j=0.3)
    assert server.twin.devices[1].observations == 1
    assert server.twin.devices[1].mean_cost == 0.7


@pytest.mark.parametrize("on_selection", [True, False])
def test_the_first_dispatches_teach_nothing(on_selection: bool) -> None:
    server = coordinator(on_selection=on_selection)
    server.accept(0, offer(), at_s=0.0, counted=False)
    server.report(0, 0.4, 0.2, at_s=1.0, time_s=0.5, energy_j=0.3)
    known = server.twin.devices[0]
    assert (known.observations, known.selections, server.twin.model_version) == (0, 0, 1)


def test_staleness_counts_the_aggregations_in_between() -> None:
    server = coordinator()
    for device in (0, 1, 2):
        server.accept(device, offer(), at_s=0.0, counted=False)
    assert server.report(1, 0.4, 0.2, at_s=1.0, time_s=0.5, energy_j=0.3) == 0
    server.open_round()
    server.accept(1, offer(), at_s=1.0)
    assert server.report(0, 0.4, 0.2, at_s=2.0, time_s=0.5, energy_j=0.3) == 1
    assert server.report(1, 0.4, 0.2, at_s=3.0, time_s=0.5, energy_j=0.3) == 1
    assert server.report(2, 0.4, 0.2, at_s=4.0, time_s=0.5, energy_j=0.3) == 3


def test_an_update_nobody_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match="not asked for"):
        coordinator().report(1, 0.4, 0.2, at_s=1.0, time_s=0.5, energy_j=0.3)


def test_an_oracle_needs_the_truth() -> None:
    server = coordinator("genie")
    server.open_round()
    with pytest.raises(TypeError, match="true costs"):
        server.choose(Now(0.0))
    decision = server.choose(Now(0.0, true_cost=lambda device: [0.5, 0.4, 0.3][device]))
    assert decision is not None and decision.device == 2


def test_with_known_costs_the_cheaper_device_is_chosen() -> None:
    server = coordinator()
    for device, cost in ((0, 0.5), (1, 0.3), (2, 0.4)):
        server.open_round()
        server.accept(device, offer(cost), at_s=0.0)
        server.report(device, cost, 0.2, at_s=0.0, time_s=0.5, energy_j=0.3)
    server.open_round()
    assert [chosen(server) for _ in range(3)] == [1, 2, 0]
