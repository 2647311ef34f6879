"""The compiled functions for one policy, power rule and mode: made once per process, kept on disk for the next."""

import inspect
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from fedtwin.compiling import compiled, is_kept, keep_on_disk
from fedtwin.errors import FedtwinError
from fedtwin.policies import Policy, load_policy
from fedtwin.policies.base import PowerRule
from fedtwin.power import full_power_plan, optimal_plan
from fedtwin.registry import Mode
from fedtwin.sim.fast import asynchronous, steps, synchronous, tournament


class Kernels(NamedTuple):
    """What Python calls: ``start`` only in asynchronous runs, ``build`` only where the policy has a lead."""

    start: Callable[..., bool]
    build: Callable[..., None]
    play: Callable[..., bool]


@cache
def kernels(policy_name: str, power: PowerRule, mode: Mode) -> Kernels:
    policy = load_policy(policy_name)
    replaced: dict[str, Any] = {"plan_of_power_rule": optimal_plan if power == "optimal" else full_power_plan}
    replaced["lead_of_policy"] = policy.lead if isinstance(policy, Policy) and policy.lead is not None else no_lead
    if isinstance(policy, Policy):
        replaced |= {"rate": steps.rate_by_policy, "score_of_policy": policy.score}
    else:
        replaced |= {"rate": steps.rate_by_oracle, "score_of_oracle": policy.score}
    plain = {
        "start": asynchronous.start,
        "build": tournament.build,
        "play": asynchronous.play if mode == "async" else synchronous.play,
    }
    source = inspect.getsourcefile(policy.score)
    made: dict[str, Any] = {}
    for name, function in plain.items():
        made[name] = compiled(function, replaced)
        folder = keep_on_disk(made[name], f"{name}-{mode}-{power}-{_file_name(policy_name)}", [source] if source else [])
        made[name] = _announced(made[name], name, policy_name, known=is_kept(folder))
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
            if __import__("os").environ.get("FT_DEBUG"): raise
            reason = next((line for line in str(error).splitlines() if line.strip()), "").strip().rstrip(".")
            raise FedtwinError(
                f"policy.name = {policy_name!r} cannot be compiled ({reason}): run.engine = 'readable' runs it."
            ) from None
        called = True
        if not known and name == "play":
            print(f"Compiled in {time.monotonic() - begun:.0f} s.", file=sys.stderr, flush=True)
        return answer

    return call


def _file_name(policy_name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "." for letter in policy_name)
