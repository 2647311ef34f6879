"""The compiled functions for one policy, power rule and mode: made once per process, kept on disk for the next."""

import sys
import time
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

from fedtwin.compiling import compiled, folder_of, is_kept, keep_on_disk
from fedtwin.errors import CannotCompileError
from fedtwin.policies import Policy, load_policy
from fedtwin.policies.base import PowerRule
from fedtwin.power import full_power_plan, optimal_plan
from fedtwin.processes import interrupts_kept_for_later
from fedtwin.registry import Mode
from fedtwin.sim.fast import asynchronous, steps, synchronous
from fedtwin.sim.fast.tournament import lead_of_policy


class Kernels(NamedTuple):
    """What Python calls: each until it answers True."""

    begin: Callable[..., bool]
    play: Callable[..., bool]


LOAD_S, COMPILE_S = 1.5, 15.0
_called: set[tuple[str, PowerRule, Mode]] = set()


def seconds_to_compile(policy_name: str, power: PowerRule, mode: Mode) -> float:
    """About how long the first round has to wait: nothing in a process that has played before, little with a kept one."""
    if (policy_name, power, mode) in _called:
        return 0.0
    folder = folder_of(_purpose("play", policy_name, power, mode), _plain(mode)["play"], _replaced(policy_name, power))
    return LOAD_S if is_kept(folder) else COMPILE_S


def can_be_tried(policy_name: str) -> bool:
    """Plain functions can be compiled, or tried; a ``functools.partial`` or an object with ``__call__`` cannot."""
    policy = load_policy(policy_name)
    functions = [policy.score, *([policy.lead] if isinstance(policy, Policy) and policy.lead is not None else [])]
    return all(isinstance(function, FunctionType) for function in functions)


@cache
def kernels(policy_name: str, power: PowerRule, mode: Mode) -> Kernels:
    if not can_be_tried(policy_name):
        raise CannotCompileError(f"policy.name = {policy_name!r} cannot be compiled (its score is no plain function).")
    replaced = _replaced(policy_name, power)
    made: dict[str, Any] = {}
    for name, function in _plain(mode).items():
        folder = folder_of(_purpose(name, policy_name, power, mode), function, replaced)
        known = is_kept(folder)
        made[name] = _announced(keep_on_disk(compiled(function, replaced), folder), name, policy_name, known=known)
    _called.add((policy_name, power, mode))
    return Kernels(**made)


def _plain(mode: Mode) -> dict[str, Callable[..., Any]]:
    engine = asynchronous if mode == "async" else synchronous
    return {"begin": engine.begin, "play": engine.play}


def _replaced(policy_name: str, power: PowerRule) -> dict[Callable[..., Any], Callable[..., Any]]:
    """What takes the place of the stand-ins."""
    policy = load_policy(policy_name)
    rule = {steps.plan_of_power_rule: optimal_plan if power == "optimal" else full_power_plan}
    if not isinstance(policy, Policy):
        return {**rule, steps.rate: steps.rate_by_oracle, steps.score_of_oracle: policy.score, lead_of_policy: no_lead}
    return {
        **rule,
        steps.rate: steps.rate_by_policy,
        steps.score_of_policy: policy.score,
        lead_of_policy: policy.lead or no_lead,
    }


def _purpose(name: str, policy_name: str, power: PowerRule, mode: Mode) -> str:
    letters = "".join(letter if letter.isalnum() or letter in "-_" else "." for letter in policy_name)
    return f"{name}-{mode}-{power}-{letters}"


def no_lead(ahead: Any, behind: Any, gap: float, knobs: Any) -> float:  # noqa: ARG001
    """Never called: a policy without a lead is scanned."""
    return 0.0


def _announced(function: Any, name: str, policy_name: str, *, known: bool) -> Callable[..., Any]:
    """Says so when the first call compiles, and names the policy when that fails."""
    called = False

    def call(*arguments: Any) -> Any:
        nonlocal called
        if called:
            return function(*arguments)
        from numba.core.errors import NumbaError

        begun = time.monotonic()
        if not known and name == "play":
            print(f"Compiling the engine for {policy_name}, once: about 10 s …", file=sys.stderr, flush=True)
        try:
            with interrupts_kept_for_later():
                answer = function(*arguments)
        except NumbaError as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), "").strip().rstrip(".")
            raise CannotCompileError(
                f"policy.name = {policy_name!r} cannot be compiled ({reason}): run.engine = 'readable' runs it."
            ) from None
        called = True
        if not known and name == "play":
            print(f"Compiled in {time.monotonic() - begun:.0f} s.", file=sys.stderr, flush=True)
        return answer

    return call
