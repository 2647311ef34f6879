"""The compiled functions for one policy, power rule and mode: made once per process, kept on disk for the next."""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

from fedtwin.compiling import compiled, folder_of, is_kept, keep_on_disk, stamp
from fedtwin.errors import CannotCompileError, FedtwinError
from fedtwin.policies import Policy, load_policy
from fedtwin.policies.base import PowerRule
from fedtwin.power import full_power_plan, optimal_plan
from fedtwin.processes import interrupts_kept_for_later
from fedtwin.registry import Mode
from fedtwin.sim.fast import asynchronous, steps, synchronous
from fedtwin.sim.fast.layout import State
from fedtwin.sim.fast.reasons import reason_in
from fedtwin.sim.fast.tournament import lead_of_policy


class Kernels(NamedTuple):
    """What Python calls: each until it answers True."""

    begin: Callable[..., bool]
    play: Callable[..., bool]


LOAD_S, COMPILE_S = 1.5, 10.0
_made: dict[str, Kernels] = {}


def seconds_to_compile(policy_name: str, power: PowerRule, mode: Mode) -> float:
    """About how long the first round has to wait: nothing in a process that has played before, little with a kept one."""
    replaced, play = _replaced(policy_name, power), _plain(mode)["play"]
    if _key(play, tuple(replaced.items())) in _made:
        return 0.0
    return LOAD_S if is_kept(folder_of(_purpose("play", policy_name, power, mode), play, replaced)) else COMPILE_S


def can_be_tried(policy_name: str) -> bool:
    """Plain functions can be compiled, or tried; a ``functools.partial`` or an object with ``__call__`` cannot."""
    policy = load_policy(policy_name)
    functions = [policy.score, *([policy.lead] if isinstance(policy, Policy) and policy.lead is not None else [])]
    return all(isinstance(function, FunctionType) for function in functions)


def kernels(policy_name: str, power: PowerRule, mode: Mode) -> Kernels:
    """Compiled anew in a process where the policy, or anything it uses, has changed."""
    if not can_be_tried(policy_name):
        raise _refusal(policy_name, "its score is no plain function")
    replaced, plain = _replaced(policy_name, power), _plain(mode)
    key = _key(plain["play"], tuple(replaced.items()))
    if key not in _made:
        made: dict[str, Any] = {}
        for name, function in plain.items():
            folder = folder_of(_purpose(name, policy_name, power, mode), function, replaced)
            try:
                fast = compiled(function, replaced)
            except CannotCompileError as error:
                raise _refusal(policy_name, str(error)) from None
            made[name] = _told(keep_on_disk(fast, folder, f"the engine for {policy_name} ({mode})"), policy_name)
        _made[key] = Kernels(**made)
    return _made[key]


@cache
def _key(play: Callable[..., Any], replaced: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...]) -> str:
    return stamp(play, dict(replaced))


def _plain(mode: Mode) -> dict[str, Callable[..., Any]]:
    engine = asynchronous if mode == "async" else synchronous
    return {"begin": engine.begin, "play": engine.play}


def _replaced(policy_name: str, power: PowerRule) -> dict[Callable[..., Any], Callable[..., Any]]:
    """What takes the place of the stand-ins."""
    policy = load_policy(policy_name)
    rule = {steps.plan_of_power_rule: optimal_plan if power == "optimal" else full_power_plan}
    if not isinstance(policy, Policy):
        return {**rule, steps.rate: steps.rate_by_oracle, steps.score_of_oracle: policy.score, lead_of_policy: no_lead}
    lead = policy.lead or no_lead
    return {**rule, steps.rate: steps.rate_by_policy, steps.score_of_policy: policy.score, lead_of_policy: lead}


def _purpose(name: str, policy_name: str, power: PowerRule, mode: Mode) -> str:
    letters = "".join(letter if letter.isalnum() or letter in "-_" else "." for letter in policy_name)
    return f"{name}-{mode}-{power}-{letters}"


def no_lead(ahead: Any, behind: Any, gap: float, knobs: Any) -> float:  # noqa: ARG001
    """Never called: a policy without a lead is scanned."""
    return 0.0


def _told(function: Any, policy_name: str) -> Callable[..., Any]:
    """The first call compiles; what goes wrong, then or later, is told with the policy's name."""
    called = False

    def call(state: State, *arguments: Any) -> Any:
        nonlocal called
        from numba.core.errors import NumbaError

        try:
            if called:
                return function(state, *arguments)
            with interrupts_kept_for_later():
                answer = function(state, *arguments)
            called = True
            return answer
        except NumbaError as error:
            raise _refusal(policy_name, reason_in(str(error))) from None
        except ArithmeticError as error:
            round_ = int(state.run["round"][0])
            raise FedtwinError(
                f"policy.name = {policy_name!r} failed in round {round_}: {type(error).__name__}: {error}."
            ) from None

    return call


def _refusal(policy_name: str, reason: str) -> CannotCompileError:
    return CannotCompileError(f"policy.name = {policy_name!r} cannot be compiled ({reason}): run.engine = 'readable' runs it.")
