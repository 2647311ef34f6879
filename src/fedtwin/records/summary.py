"""The means of a run, added up row by row."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedtwin import __version__
from fedtwin.config import Config, Identity
from fedtwin.learning.tasks import task_of
from fedtwin.policies import power_rule, scheme_name
from fedtwin.records.schema import SCHEMA_VERSION, Row

CODE_COLUMNS = {
    "policy.name": "policy_code",
    "learning.model": "model_code",
    "learning.aggregation": "aggregation_code",
    "learning.loss": "loss_code",
    "learning.metric": "metric_code",
    "learning.optimiser": "optimiser_code",
    "world.channel": "channel_code",
    "world.load": "load_code",
    "world.availability": "availability_code",
    "world.sensing": "sensing_code",
}
"""Where the digests of the user's own code stand in a summary, by the settings that name it."""


@dataclass(frozen=True)
class Summary:
    """Means are over selections, None where there was none; declines are left out. ``rounds`` counts selections.

    ``drops`` and ``wasted_energy_j`` are had where synchronous rounds have a timeout.
    """

    mean_cost: float | None
    mean_time_s: float | None
    mean_energy_j: float | None
    virtual_time_s: float
    rounds: int
    declines: int
    least_mean_samples: float
    total_queue: float
    passed_rounds: int
    mean_staleness: float | None
    max_staleness: int | None
    time_violations: int
    energy_violations: int
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_metric: float | None = None
    plain_test_loss: float | None = None
    plain_test_metric: float | None = None
    refusals: int | None = None
    drops: int | None = None
    wasted_energy_j: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Every mean; those of the model only where one was trained, those of a timeout where rounds have one."""
        all_ = asdict(self)
        if self.test_loss is None:
            del all_["test_loss"], all_["test_metric"], all_["refusals"]
        if self.test_accuracy is None:
            del all_["test_accuracy"]
        if self.plain_test_loss is None:
            del all_["plain_test_loss"], all_["plain_test_metric"]
        if self.drops is None:
            del all_["drops"], all_["wasted_energy_j"]
        return all_


NO_ROUNDS = Summary(None, None, None, 0.0, 0, 0, 0.0, 0.0, 0, None, None, 0, 0)
"""Of a run that has only begun."""


@dataclass
class Tally:
    """Sums over the rows so far, in the order they come; ``sampled`` counts the points of a series that have been reached.

    The compiled engine has the same fields in its state.
    """

    sampled: int = 0
    cost_sum: float = 0.0
    time_sum_s: float = 0.0
    energy_sum_j: float = 0.0
    selections: int = 0
    declines: int = 0
    staleness_sum: int = 0
    staleness_max: int = 0
    arrivals: int = 0
    rounds_with_a_selection: int = 0
    time_violations: int = 0
    energy_violations: int = 0
    arrival_round: int = 0
    selection_round: int = 0
    drops: int = 0
    wasted_sum_j: float = 0.0

    def add(self, row: Row, charged_s: float) -> None:
        """``charged_s`` is the latency the row is charged: its own, or the slowest of a synchronous round."""
        if row.staleness is not None:
            tally_arrival(self, row.round, row.staleness)
        if row.declined or row.cost is None or row.compute_j is None or row.upload_j is None:
            tally_decline(self)
        else:
            energy_j = row.compute_j + row.upload_j
            tally_selection(self, row.round, row.cost, charged_s, energy_j, row.time_ok, row.energy_ok)
            if row.dropped:
                tally_drop(self, energy_j)

    @property
    def mean_cost(self) -> float | None:
        return self._mean(self.cost_sum)

    def summary(
        self, *, virtual_time_s: float, rounds: int, trained: Sequence[float], total_queue: float, timeout: bool = False
    ) -> Summary:
        """``trained`` holds the samples every device has trained on in ``rounds`` rounds of the queues, not those in vain;
        ``timeout`` says whether rounds have one.
        """
        return Summary(
            mean_cost=self.mean_cost,
            mean_time_s=self._mean(self.time_sum_s),
            mean_energy_j=self._mean(self.energy_sum_j),
            virtual_time_s=virtual_time_s,
            rounds=self.selections,
            declines=self.declines,
            least_mean_samples=min(trained) / rounds,
            total_queue=total_queue,
            passed_rounds=rounds - self.rounds_with_a_selection,
            mean_staleness=self.staleness_sum / self.arrivals if self.arrivals else None,
            max_staleness=self.staleness_max if self.arrivals else None,
            time_violations=self.time_violations,
            energy_violations=self.energy_violations,
            drops=self.drops if timeout else None,
            wasted_energy_j=self.wasted_sum_j if timeout else None,
        )

    def _mean(self, total: float) -> float | None:
        return total / self.selections if self.selections else None


def run_summary(config: Config, summary: Summary, identity: Identity) -> dict[str, Any]:
    """What ``summary.json`` holds: the means, and what they are the means of. No wall times: the same run, the same bytes.

    ``identity`` is the configuration's as it was when the run began.
    """
    return {
        "scheme": scheme_name(config),
        "seed": config.run.seed,
        **summary.as_dict(),
        "policy": config.policy.name,
        "mode": config.run.mode,
        "power": power_rule(config),
        "package_version": __version__,
        "config_hash": identity.hash,
        "schema_version": SCHEMA_VERSION,
        **judged_by(config),
        **{CODE_COLUMNS[setting]: digest for setting, digest in identity.code.items()},
    }


def judged_by(config: Config) -> dict[str, str]:
    """What ``test_metric`` is, and which of two is the better one."""
    if config.learning is None:
        return {}
    task = task_of(config.learning)
    return {"metric": task.metric, "metric_direction": task.direction}


def tally_arrival(tally: Any, round_: int, staleness: int) -> None:
    """An upload opened a round: its staleness counts once, however many devices are asked in the round.

    This and the next three are compiled as well: a tally is whatever has the fields of one.
    """
    if round_ != tally.arrival_round:
        tally.arrival_round = round_
        tally.arrivals += 1
        tally.staleness_sum += staleness
        if staleness > tally.staleness_max:
            tally.staleness_max = staleness


def tally_decline(tally: Any) -> None:
    tally.declines += 1


def tally_selection(
    tally: Any, round_: int, cost: float, charged_s: float, energy_j: float, time_ok: bool, energy_ok: bool
) -> None:
    tally.selections += 1
    if round_ != tally.selection_round:
        tally.selection_round = round_
        tally.rounds_with_a_selection += 1
    tally.cost_sum = tally.cost_sum + cost
    tally.time_sum_s = tally.time_sum_s + charged_s
    tally.energy_sum_j = tally.energy_sum_j + energy_j
    tally.time_violations += not time_ok
    tally.energy_violations += not energy_ok


def tally_drop(tally: Any, energy_j: float) -> None:
    """A selection whose upload came too late for its round; what it spent is counted with the others, and here once more."""
    tally.drops += 1
    tally.wasted_sum_j = tally.wasted_sum_j + energy_j
