"""A device that a synchronous round waits for no longer stops when the round ends: what it has spent by then is wasted."""

import math

from fedtwin.config import Config
from fedtwin.formulas.power import Plan


def timeout_of(config: Config) -> float:
    """How long a synchronous round may take; infinite where it waits for all."""
    return math.inf if config.run.sync_timeout_s is None else config.run.sync_timeout_s


def computed_until_j(timeout_s: float, compute_s: float, compute_j: float) -> float:
    """The part of E_cmp that is spent when the round ends: at one frequency it grows evenly."""
    return compute_j if timeout_s >= compute_s else compute_j * (timeout_s / compute_s)


def sent_until_j(timeout_s: float, compute_s: float, power_w: float) -> float:
    """The part of E_com: sending begins when the training is done."""
    return power_w * max(timeout_s - compute_s, 0.0)


def cut_off(plan: Plan, timeout_s: float) -> Plan:
    """The plan, if it is late with the energy that is spent when the round ends; times stay as planned."""
    if not is_late(plan, timeout_s):
        return plan
    return plan._replace(
        compute_j=computed_until_j(timeout_s, plan.compute_s, plan.compute_j),
        upload_j=sent_until_j(timeout_s, plan.compute_s, plan.power_w),
    )


def is_late(plan: Plan, timeout_s: float) -> bool:
    """Whether a device that has taken the round is dropped from it."""
    return plan.feasible and plan.compute_s + plan.upload_s > timeout_s
