"""The compiled functions for one policy, power rule and mode: made once per process, kept on disk for the next."""

import inspect
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedtwin.compiling import compiled, folder_of, is_kept, keep_on_disk
from fedtwin.errors import CannotCompileError
from fedtwin.policies import Policy, load_policy
from fedtwin.policies.base import PowerRule
from fedtwin.power import full_power_plan, optimal_plan
from fedtwin.registry import Mode
from fedtwin.sim.fast import asynchronous, steps, synchronous


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
    return LOAD_S if is_kept(_folder("play", policy_name, power, mode)) else COMPILE_S


def _folder(name: str, policy_name: str, power: PowerRule, mode: Mode) -> Path:
    source = inspect.getsourcefile(load_policy(policy_name).score)
    return folder_of(f"{name}-{mode}-{power}-{_file_name(policy_name)}", [source] if source else [])


@cache
def kernels(policy_name: str, power: PowerRule, mode: Mode) -> Kernels:
    policy = load_policy(policy_name)
    replaced: dict[str, Any] = {"plan_of_power_rule": optimal_plan if power == "optimal" else full_power_plan}
    replaced["lead_of_policy"] = policy.lead if isinstance(policy, Policy) and policy.lead is not None else no_lead
    if isinstance(policy, Policy):
        replaced |= {"rate": steps.rate_by_policy, "score_of_policy": policy.score}
    else:
        replaced |= {"rate": steps.rate_by_oracle, "score_of_oracle": policy.score}
    engine = asynchronous if mode == "async" else synchronous
    plain: dict[str, Callable[..., Any]] = {"begin": engine.begin, "play": engine.play}
    made: dict[str, Any] = {}
    for name, function in plain.items():
        folder = _folder(name, policy_name, power, mode)
        known = is_kept(folder)
        made[name] = _announced(keep_on_disk(compiled(function, replaced), folder), name, policy_name, known=known)
    _called.add((policy_name, power, mode))
    return Kernels(**made)


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
            print(f"Compiling the engine for {policy_name}, once: about 20 s …", file=sys.stderr, flush=True)
        try:
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


def _file_name(policy_name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "." for letter in policy_name)
