"""Why a device was chosen, or was not: the scores of a round as the policy saw them, held against what was written down."""

import math
from typing import Any

import numpy as np

from fedtwin.config import Config
from fedtwin.coordinator import Coordinator, Now
from fedtwin.errors import FedtwinError
from fedtwin.policies import OraclePolicy, Policy, knobs_of, policy_of, power_rule
from fedtwin.policies.base import last_if_nan
from fedtwin.runs import Run
from fedtwin.service.forecasts import predictor
from fedtwin.service.served import Served
from fedtwin.service.telling import UnansweredError, number_or_none
from fedtwin.twin import Twin
from fedtwin.twin.update import with_status

ROWS = ("round", "clock_s", "device", "index", "declined", "decline_reason")


def decision(served: Served, round_: int, which: str | None, *, trust: bool) -> dict[str, Any]:
    """Scores are null, with the reason in ``why``, where they cannot be had from the records."""
    with served.reading() as run:
        config = _settings_then(served, run, round_)
        if "policy.name" in config.own_code and not trust:
            raise UnansweredError(
                403,
                f"policy.name = {config.policy.name!r} is code of the run's owner: its scores are asked for with --trust only.",
            )
        asked = _asked(run, round_)
        twin = _twin(run, round_)
        drained = _drained(served, run, round_, twin)
        for number in drained:
            twin = with_status(twin, number, "offline")
        device = None if which is None else _number(which, served.names()[: len(twin.devices)], round_)
        taken = [number for number, declined in zip(asked["device"], asked["declined"], strict=True) if not declined]
        found = {
            "round": round_,
            "seconds": float(asked["clock_s"][0]),
            "chosen": taken[0] if taken else None,
            "all_chosen": taken,
            "runner_up": None,
            "declined": [
                {"device": number, "reason": reason}
                for number, reason, no in zip(asked["device"], asked["decline_reason"], asked["declined"], strict=True)
                if no
            ],
            "policy": config.policy.name,
            "scores": {
                str(number): number_or_none(score) for number, score in zip(asked["device"], asked["index"], strict=True)
            },
            "rank": None,
            "device": device,
            "available": None if device is None else twin.devices[device].status == "idle",
            "parts": None,
        }
        found |= _scored(run, config, twin, asked, device, served.names())
        if device in drained:
            found["why"] = f"{served.names()[device]} could not be asked: it was drained."
        return found


def _number(which: str, names: list[str], round_: int) -> int:
    """Of a device that is named by its number or its name; digits are a number."""
    number = int(which) if which.isdigit() else names.index(which) if which in names else len(names)
    if number < len(names):
        return number
    there = f"the devices 0 to {len(names) - 1}, {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
    raise UnansweredError(404, f"device = {which[:64]!r}: in round {round_} there were {there}.")


def _settings_then(served: Served, run: Run, round_: int) -> Config:
    """Those of a live run may have been changed while it went on."""
    try:
        changed = served.facts.changed_at(run.moment(round=round_).revision)
    except FedtwinError as error:
        raise UnansweredError(404, str(error)) from None
    if not changed:
        return run.config
    from fedtwin.live.run.settable import config_with

    return config_with(run.config, changed)


def _asked(run: Run, round_: int) -> dict[str, list[Any]]:
    """The rows of the round, in the order of asking."""
    rows = run.columns(*ROWS, within=("round", round_, round_))
    own = np.flatnonzero(rows["round"] == round_)
    if not len(own):
        raise UnansweredError(404, f"round = {round_}: nobody was asked in it.")
    return {name: [_plain(value) for value in rows[name][own]] for name in ROWS}


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _twin(run: Run, round_: int) -> Twin:
    try:
        return run.twin(round=round_)
    except FedtwinError as error:
        raise UnansweredError(404, str(error)) from None


def _drained(served: Served, run: Run, round_: int, twin: Twin) -> list[int]:
    """Who was there, and by an order not asked."""
    names = run.drained(round=round_)
    known = enumerate(zip(served.names(), twin.devices, strict=False))
    return [number for number, (name, device) in known if name in names and device.status == "idle"]


def _scored(
    run: Run, config: Config, twin: Twin, asked: dict[str, list[Any]], device: int | None, names: list[str]
) -> dict[str, Any]:
    policy, first = policy_of(config), asked["device"][0]
    if why := _hidden(config, policy):
        return {"why": why}
    coordinator = Coordinator(
        twin,
        policy,
        knobs_of(config),
        run.devices["tie_rank"].to_numpy().tolist(),
        policy_name=config.policy.name,
        learn_on_selection=False,
        predict=predictor(run, config, power_rule(config)),
        gain_known=config.twin.gain,
    )
    now = Now(float(asked["clock_s"][0]))
    coordinator.go_on(asked["round"][0], None)
    snapshot = coordinator.snapshot(now)
    if snapshot.scores[first] != last_if_nan(asked["index"][0]):
        return {
            "why": "The scores cannot be had again from the records: that of the device asked first is not as written down."
        }
    ranks = coordinator.ranks
    order = sorted(
        (number for number, may_be in enumerate(snapshot.available) if may_be),
        key=lambda number: (snapshot.scores[number], ranks[number]),
    )
    asked_then = set(asked["device"])
    passed = set(order[: order.index(first)]) if first in order else set()
    left = [number for number in order if number not in asked_then | passed]
    shown = {*asked_then, *left[:1], *({device} if device is not None else ())}
    explained = snapshot.explained
    found: dict[str, Any] = {
        "runner_up": left[0] if left else None,
        "scores": {str(number): number_or_none(snapshot.scores[number]) for number in sorted(shown)},
        "rank": order.index(device) + 1 if device in order else None,
        "candidates": len(order),
        "parts": None if explained is None else {str(number): _finite(explained[number]) for number in sorted(shown)},
    }
    if device is not None:
        found["available"] = snapshot.available[device]
    return {**found, "why": _sentence(twin, asked, order, device, passed, names)}


def _hidden(config: Config, policy: Policy | OraclePolicy) -> str | None:
    """Why the scores of a policy are in no records."""
    if isinstance(policy, OraclePolicy):
        return "The policy is told the true cost of every device in this round, which no records have."
    if policy.state is not None:
        return "The policy keeps a state of its own of every device, which no records have."
    if policy.predicts and config.twin.gain == "current":
        return "The policy was told the gain of that moment of every device, and the records have those of who was asked."
    return None


def _finite(parts: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in parts.items()}


def _sentence(
    twin: Twin, asked: dict[str, list[Any]], order: list[int], device: int | None, passed: set[int], names: list[str]
) -> str:
    """Of the device that is asked about, or of the first that was asked."""
    number = asked["device"][0] if device is None else device
    name = names[number]
    if number in asked["device"]:
        place = asked["device"].index(number)
        if asked["declined"][place]:
            return f"{name} was asked and declined: {asked['decline_reason'][place]}."
        before = f", after {place} that declined" if place else ""
        return f"{name} had the smallest score of the {len(order)} that could be asked{before}."
    status = twin.devices[number].status
    if status != "idle":
        return f"{name} could not be asked: it was {status}."
    if number in passed:
        return f"{name} had a smaller score, but was being asked in another round."
    if number not in order:
        return f"{name} could not be asked: it had taken a later round, or joined in one."
    return f"{name} was number {order.index(number) + 1} of the {len(order)} that could be asked."
