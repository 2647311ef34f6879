"""The compiled functions for one policy, power rule and mode: made once per process, kept on disk for the next."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from fedtwin.compiling import compiled, folder_of, is_kept, is_ours, keep_on_disk, stamp, why_not
from fedtwin.errors import CannotCompileError
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.policies import OraclePolicy, Policy
from fedtwin.policies.base import PowerRule
from fedtwin.processes import interrupts_kept_for_later
from fedtwin.registry import Mode
from fedtwin.sim.fast import asynchronous, probe, steps, synchronous
from fedtwin.sim.fast.layout import State
from fedtwin.sim.fast.reasons import reason_in
from fedtwin.sim.fast.tournament import lead_of_policy


class Kernels(NamedTuple):
    """What Python calls: the first two until they answer True, the others to see what the engine would do now."""

    begin: Callable[..., bool]
    play: Callable[..., bool]
    scores: Callable[..., None]
    best: Callable[..., int]


Replaced = Mapping[Callable[..., Any], Callable[..., Any]]


LOAD_S, COMPILE_S = 1.5, 10.0
_made: dict[str, Kernels] = {}


def seconds_to_compile(policy: Policy | OraclePolicy, power: PowerRule, mode: Mode, worth_s: float) -> float:
    """About how long the first round has to wait: nothing in a process that has played before, little with a kept one.

    Where even little is more than it is ``worth``, Numba is not imported to find out.
    """
    replaced, play = _replaced(policy, power), _plain(mode)["play"]
    if _key(play, replaced) in _made:
        return 0.0
    if worth_s <= LOAD_S:
        return LOAD_S
    return LOAD_S if is_kept(folder_of(_purpose("play", power, mode), play, replaced)) else COMPILE_S


def obstacle_to_compiling(policy: Policy | OraclePolicy) -> str | None:
    """Why a policy of the user's is not compiled: something in it is not understood completely. None where all is."""
    functions: list[tuple[Any, Callable[..., Any]]] = [(policy.score, _stand_in(policy))]
    if isinstance(policy, Policy) and policy.lead is not None:
        functions.append((policy.lead, lead_of_policy))
    return next((reason for function, stand_in in functions if (reason := why_not(function, stand_in)) is not None), None)


def is_users(policy: Policy | OraclePolicy) -> bool:
    """Whether any of its functions is not fedtwin's own, so that compiled decisions are held against readable ones."""
    return not (is_ours(policy.score) and is_ours(getattr(policy, "lead", None) or no_lead))


def kernels(policy: Policy | OraclePolicy, name: str, power: PowerRule, mode: Mode) -> Kernels:
    """Compiled anew in a process where the policy, or anything it uses, has changed. ``name`` is what the user calls it."""
    if (reason := obstacle_to_compiling(policy)) is not None:
        raise _refusal(name, reason)
    replaced, plain = _replaced(policy, power), _plain(mode)
    key = _key(plain["play"], replaced)
    if key not in _made:
        made: dict[str, Any] = {}
        for part, function in plain.items():
            folder = folder_of(_purpose(part, power, mode), function, replaced)
            try:
                fast = compiled(function, replaced)
            except CannotCompileError as error:
                raise _refusal(name, str(error)) from None
            made[part] = _told(keep_on_disk(fast, folder, f"the engine for {name} ({mode})"), name)
        _made[key] = Kernels(**made)
    return _made[key]


def _key(play: Callable[..., Any], replaced: Replaced) -> str:
    """Of functions that are all fedtwin's it is worked out once."""
    functions = tuple(replaced.items())
    return _key_of_ours(play, functions) if all(map(is_ours, replaced.values())) else stamp(play, replaced)


@cache
def _key_of_ours(play: Callable[..., Any], replaced: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...]) -> str:
    return stamp(play, dict(replaced))


def _plain(mode: Mode) -> dict[str, Callable[..., Any]]:
    engine = asynchronous if mode == "async" else synchronous
    return {"begin": engine.begin, "play": engine.play, "scores": probe.scores, "best": probe.best}


def _stand_in(policy: Policy | OraclePolicy) -> Callable[..., Any]:
    return steps.score_of_policy if isinstance(policy, Policy) else steps.score_of_oracle


def _replaced(policy: Policy | OraclePolicy, power: PowerRule) -> Replaced:
    """What takes the place of the stand-ins."""
    plan = optimal_plan if power == "optimal" else full_power_plan
    check = steps.refuse_nan if is_users(policy) else steps.trust_choice
    alike: Replaced = {steps.plan_of_power_rule: plan, steps.check_choice: check}
    if isinstance(policy, Policy):
        rates: Replaced = {steps.rate: steps.rate_by_policy, steps.raw: steps.raw_by_policy}
        return {**alike, **rates, steps.score_of_policy: policy.score, lead_of_policy: policy.lead or no_lead}
    rates = {steps.rate: steps.rate_by_oracle, steps.raw: steps.raw_by_oracle}
    return {**alike, **rates, steps.score_of_oracle: policy.score, lead_of_policy: no_lead}


def _purpose(part: str, power: PowerRule, mode: Mode) -> str:
    return f"{part}-{mode}-{power}"


def no_lead(ahead: Any, behind: Any, gap: float, knobs: Any) -> float:  # noqa: ARG001
    """Never called: a policy without a lead is scanned."""
    return 0.0


def _told(function: Any, policy_name: str) -> Callable[..., Any]:
    """The first call compiles; what Numba cannot is told with the policy's name."""
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

    return call


def _refusal(policy_name: str, reason: str) -> CannotCompileError:
    return CannotCompileError(f"policy.name = {policy_name!r} cannot be compiled ({reason}): run.engine = 'readable' runs it.")
