"""The summary of a simulation that has not ended, by the sums that its engine makes, in their order."""

from typing import Any

import numpy as np

from fedtwin.config import Config
from fedtwin.records import SCHEMA_VERSION, Summary, Tally
from fedtwin.records.summary import NO_ROUNDS, judged_by
from fedtwin.runs.rows import NOBODY, Floats, Rows
from fedtwin.twin import Twin, total_queue


def summary_of(rows: Rows, config: Config, twin: Twin, end_s: float) -> Summary:
    """The means over all rounds that are there; ``twin`` is the last one, ``end_s`` the clock there."""
    if not rows.rounds:
        return NO_ROUNDS
    return tally_of(rows, config).summary(
        virtual_time_s=end_s,
        rounds=rows.rounds,
        trained=_trained(rows, len(twin.devices)),
        total_queue=total_queue(twin, rows.rounds + 1),
        timeout=config.run.sync_timeout_s is not None,
    )


def _trained(rows: Rows, devices: int) -> list[float]:
    """Samples by device, of all its selections whose upload was not dropped."""
    taken = ~rows.declined & ~rows.dropped & (rows.round > 0)
    return [float(number) for number in np.bincount(rows.device[taken], weights=rows.samples[taken], minlength=devices)]


def tally_of(rows: Rows, config: Config) -> Tally:
    """As if every row had been added."""
    taken = ~rows.declined & (rows.round > 0)
    charged_s = rows.compute_s + rows.upload_s
    if config.run.mode == "sync":
        charged_s = rows.slowest_s[rows.round - 1]
    staleness = rows.staleness[rows.begins]
    return Tally(
        cost_sum=_sum(rows.cost[taken]),
        time_sum_s=_sum(charged_s[taken]),
        energy_sum_j=_sum((rows.compute_j + rows.upload_j)[taken]),
        selections=int(taken.sum()),
        declines=int((rows.declined & (rows.round > 0)).sum()),
        staleness_sum=int(staleness[staleness != NOBODY].sum()),
        staleness_max=int(staleness[staleness != NOBODY].max(initial=0)),
        arrivals=int((staleness != NOBODY).sum()),
        rounds_with_a_selection=len(np.unique(rows.round[taken])),
        time_violations=int((~rows.time_ok[taken]).sum()),
        energy_violations=int((~rows.energy_ok[taken]).sum()),
        drops=int(rows.dropped.sum()),
        wasted_sum_j=_sum((rows.compute_j + rows.upload_j)[rows.dropped]),
    )


def described(config: Config, summary: Summary) -> dict[str, Any]:
    """Like ``summary.json``, for a run that has not ended. Code of the user's is not asked for its scheme and power rule."""
    own = "policy.name" in config.own_code
    scheme, power = config.policy.name, str(config.policy.power)
    if not own:
        from fedtwin.policies import power_rule, scheme_name

        scheme, power = scheme_name(config), power_rule(config)
    return {
        "scheme": scheme,
        "seed": config.run.seed,
        **summary.as_dict(),
        "policy": config.policy.name,
        "mode": config.run.mode,
        "power": power,
        "schema_version": SCHEMA_VERSION,
        **judged_by(config),
        "unfinished": True,
    }


def _sum(values: Floats) -> float:
    """One after the other, as a loop adds them."""
    return float(np.cumsum(np.append(0.0, values))[-1])
