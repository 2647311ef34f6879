"""A network is the same in every process, or refused."""

import warnings

import pytest

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.learning import elsewhere
from fedtwin.learning.elsewhere import require_the_same_elsewhere
from fedtwin.learning.executors import Workload

NETS = "tests.learning.own_networks"


def workload(name: str) -> Workload:
    return Workload(LearningConfig(dataset="digits", model=f"{NETS}:{name}"), (1, 8, 8), 10, 0, 1)


def test_chance_of_numpy_in_the_factory_is_refused() -> None:
    with pytest.raises(FedtwinError, match=f"^learning.model = '{NETS}:chance_of_numpy' is another network when .* made again"):
        workload("chance_of_numpy").check(())


@pytest.mark.parametrize("name", ["chance_at_import", "order_of_a_set"])
def test_what_differs_from_process_to_process_is_refused(name: str) -> None:
    workload(name).check(())
    with pytest.raises(FedtwinError, match=f"^learning.model = '{NETS}:{name}' is another network in another process"):
        require_the_same_elsewhere(workload(name))


def test_the_same_network_passes_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def same(work: Workload) -> str:
        asked.append(work)
        return work.fingerprint()

    monkeypatch.setattr(elsewhere, "_compared", set())
    monkeypatch.setattr(elsewhere, "_fingerprint_elsewhere", same)
    for _ in range(2):
        require_the_same_elsewhere(workload("tied"))
    assert len(asked) == 1


def test_a_network_that_only_this_process_has_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "_compared", set())
    monkeypatch.setattr(elsewhere, "asked_elsewhere", lambda *_: None)
    with pytest.warns(FedtwinWarning, match="could not be made in a second process"):
        require_the_same_elsewhere(workload("tied"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_the_same_elsewhere(workload("tied"))
