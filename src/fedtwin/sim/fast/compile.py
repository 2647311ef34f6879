"""The compiled functions for one policy, power rule, world and mode: made once per process, kept on disk for the next."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from fedtwin.compiling import compiled, compiled_together, folder_of, is_kept, is_ours, keep_on_disk, stamp, why_not
from fedtwin.config import Config
from fedtwin.coordinator import GainKnown
from fedtwin.errors import CannotCompileError
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.policies import OraclePolicy, Policy, Prediction, policy_of, power_rule
from fedtwin.policies.base import CHANGES_BY_ITSELF, PowerRule, as_if_told, attributes_in, prediction_as_if_told
from fedtwin.processes import interrupts_kept_for_later
from fedtwin.registry import Mode
from fedtwin.sim.fast import asynchronous, choose, probe, steps, synchronous
from fedtwin.sim.fast.layout import State
from fedtwin.sim.fast.reasons import reason_in
from fedtwin.sim.fast.tournament import lead_of_policy, never_the_same, plain_score, same_for_ever
from fedtwin.world.always import AVAILABILITY as ALWAYS
from fedtwin.world.parts import Parts, parts_of


class Kernels(NamedTuple):
    """What Python calls: the first two until they answer True, the others to see what the engine would do now."""

    begin: Callable[..., bool]
    play: Callable[..., bool]
    scores: Callable[..., None]
    best: Callable[..., int]
    draws: Callable[..., None]


class Exchanged(NamedTuple):
    """All that an engine is compiled for, and the settings by which the user's own parts are called in a sentence."""

    policy: Policy | OraclePolicy
    power: PowerRule
    mode: Mode
    parts: Parts
    gain: GainKnown
    names: Mapping[str, str]


class OwnFunction(NamedTuple):
    """A function that a part brings, the stand-in it replaces, the setting that names the part, and what the part declares."""

    function: Any
    stand_in: Callable[..., Any]
    setting: str
    declared: Mapping[str, Any]


Replaced = Mapping[Callable[..., Any], Callable[..., Any]]


LOAD_S, COMPILE_S = 1.5, 10.0
_made: dict[str, Kernels] = {}


def exchanged_in(config: Config) -> Exchanged:
    """What a configuration names."""
    world = config.world
    names = {"policy.name": config.policy.name, "world.channel": world.channel, "world.load": world.load}
    names |= {"world.availability": world.availability, "world.sensing": world.sensing}
    return Exchanged(policy_of(config), power_rule(config), config.run.mode, parts_of(config), config.twin.gain, names)


def seconds_to_compile(what: Exchanged, worth_s: float) -> float:
    """About how long the first round has to wait: nothing in a process that has played before, little with a kept one.

    Where even little is more than it is ``worth``, Numba is not imported to find out.
    """
    if worth_s <= LOAD_S and not _made:
        return LOAD_S
    key = _key(what.mode, _replaced(what))
    if key in _made:
        return 0.0
    if worth_s <= LOAD_S:
        return LOAD_S
    return LOAD_S if is_kept(folder_of(_purpose("play", what), key)) else COMPILE_S


def obstacle_to_compiling(what: Exchanged) -> CannotCompileError | None:
    """Why a part of the user's is not compiled: something in it is not understood completely. None where all is."""
    for own in own_functions(what):
        if (reason := why_not(own.function, own.stand_in, own.declared)) is not None:
            return _refusal(what, own.setting, reason)
    return None


def is_users(what: Exchanged) -> bool:
    """Whether any function is not fedtwin's own, so that compiled rounds are held against readable ones."""
    return not all(is_ours(own.function) for own in own_functions(what))


def own_functions(what: Exchanged) -> list[OwnFunction]:
    """What the policy and the parts of the world bring."""
    policy, parts = what.policy, what.parts
    declared = {
        "settings": policy.settings,
        "state": policy.state,
        "prediction": Prediction if policy.predicts else None,
    }
    score = steps.score_of_policy if isinstance(policy, Policy) else steps.score_of_oracle
    of_policy = [(policy.score, score), (policy.lead, lead_of_policy), (policy.observe, steps.observe_of_policy)]
    of_world: list[tuple[Any, Any, str, Any]] = [
        (parts.channel.gain, steps.gain_of_channel, "world.channel", parts.channel),
        (parts.load.cpu_hz, steps.cpu_hz_of_load, "world.load", parts.load),
        (parts.availability.available, steps.answers, "world.availability", parts.availability),
        (parts.sensing.samples, steps.samples_of_sensing, "world.sensing", parts.sensing),
    ]
    return [
        *(OwnFunction(function, place, "policy.name", declared) for function, place in of_policy if function is not None),
        *(OwnFunction(function, place, name, {"settings": part.settings}) for function, place, name, part in of_world),
    ]


def kernels(what: Exchanged) -> Kernels:
    """Compiled anew in a process where a part, or anything it uses, has changed."""
    if (obstacle := obstacle_to_compiling(what)) is not None:
        raise obstacle
    replaced, plain = _replaced(what), _plain(what.mode)
    key = _key(what.mode, replaced)
    if key not in _made:
        declared = {own.stand_in: own.declared for own in own_functions(what)}
        try:
            fast = compiled_together(plain.values(), replaced, declared)
        except CannotCompileError as error:
            raise _refusal(what, _whose(what), str(error)) from None
        called = f"the engine for {_called(what)} ({what.mode})"
        made = {
            part: _told(keep_on_disk(function, folder_of(_purpose(part, what), key), called), what)
            for part, function in zip(plain, fast, strict=True)
        }
        _made[key] = Kernels(**made)
    return _made[key]


def compiled_for(what: Exchanged, function: Callable[..., Any], purpose: str, called: str) -> Any:
    """Another function over the same steps, for the same policy, power rule and world."""
    replaced = _replaced(what)
    fast = compiled(function, replaced, {own.stand_in: own.declared for own in own_functions(what)})
    return keep_on_disk(fast, folder_of(purpose, stamp(function, replaced)), called)


def _key(mode: Mode, replaced: Replaced) -> str:
    """Names all that an engine is made from; of functions that are all fedtwin's it is worked out once."""
    ours = all(map(is_ours, replaced.values()))
    return _key_of_ours(mode, tuple(replaced.items())) if ours else _stamp_of_all(mode, replaced)


@cache
def _key_of_ours(mode: Mode, replaced: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...]) -> str:
    return _stamp_of_all(mode, dict(replaced))


def _stamp_of_all(mode: Mode, replaced: Replaced) -> str:
    first, *others = _plain(mode).values()
    return stamp(first, replaced, *others)


def _plain(mode: Mode) -> dict[str, Callable[..., Any]]:
    engine = asynchronous if mode == "async" else synchronous
    return {
        "begin": engine.begin,
        "play": engine.play,
        "scores": probe.scores,
        "best": probe.best,
        "draws": probe.draws,
    }


def _replaced(what: Exchanged) -> Replaced:
    """What takes the place of the stand-ins."""
    policy, users = what.policy, is_users(what)
    found: dict[Callable[..., Any], Callable[..., Any]] = {own.stand_in: own.function for own in own_functions(what)}
    found.setdefault(lead_of_policy, no_lead)
    found[steps.plan_of_power_rule] = optimal_plan if what.power == "optimal" else full_power_plan
    found[steps.raw] = steps.raw_by_policy if isinstance(policy, Policy) else steps.raw_by_oracle
    found[steps.check_choice] = steps.refuse_nan if users else steps.trust_choice
    found[steps.checked] = steps.refuse_draw if users else steps.trust_draw
    found[steps.answer_of] = steps.answer_always if what.parts.availability is ALWAYS else steps.answer_if_available
    little, scored = looks_at_little(policy), isinstance(policy, Policy)
    found[steps.view_of] = steps.view_of_little if little else steps.full_view
    found[choose.scan] = choose.scan_for_little if little and scored else choose.full_scan
    if little:
        found[as_if_told] = steps.nothing_to_tell
    if not (little and scored):
        found[plain_score] = no_score
    if policy.lead is not None and "device" in attributes_in(policy.score):
        found[same_for_ever] = never_the_same
    found[steps.prediction_of] = steps.predicted if policy.predicts else steps.no_prediction
    found[prediction_as_if_told] = steps.told_anyway if policy.predicts else steps.still_no_prediction
    return {**found, **_of_gain(what.gain), **_of_records(what)}


def looks_at_little(policy: Policy | OraclePolicy) -> bool:
    """Whether it looks at nothing that changes by itself: known of those that have a lead, and of fedtwin's own."""
    if policy.lead is not None:
        return True
    return is_ours(policy.score) and not attributes_in(policy.score) & set(CHANGES_BY_ITSELF)


def _of_gain(gain: GainKnown) -> Replaced:
    if gain == "current":
        return {steps.gain_known: steps.gain_of_this_moment, steps.gain_age_s: steps.age_of_this_moment}
    known = steps.mean_of_heard_gains if gain == "mean" else steps.gain_last_heard
    return {steps.gain_known: known, steps.gain_age_s: steps.age_of_heard}


def _of_records(what: Exchanged) -> Replaced:
    """Settings and states by their names. Numba is needed to name any."""
    policy, parts = what.policy, what.parts
    found: dict[Callable[..., Any], Callable[..., Any]] = {
        steps.own_state: steps.no_state,
        steps.hear: steps.nobody_hears,
        steps.knobs_in: steps.plain_knobs,
        steps.channel_settings_in: steps.no_settings,
        steps.load_settings_in: steps.no_settings,
        steps.availability_settings_in: steps.no_settings,
        steps.sensing_settings_in: steps.no_settings,
    }
    world = (parts.channel, parts.load, parts.availability, parts.sensing)
    records = (policy.state, policy.settings, *(part.settings for part in world))
    if all(record is None for record in records):
        return found
    from fedtwin.sim.fast import named

    makers = (
        *(named.state_of, named.knobs_of),
        *(named.channel_settings_of, named.load_settings_of, named.availability_settings_of, named.sensing_settings_of),
    )
    places: tuple[Any, ...] = (
        *(steps.own_state, steps.knobs_in),
        *(steps.channel_settings_in, steps.load_settings_in, steps.availability_settings_in, steps.sensing_settings_in),
    )
    found |= {place: make(record) for place, make, record in zip(places, makers, records, strict=True) if record is not None}
    return found | ({steps.hear: named.hear_by_policy} if policy.state is not None else {})


def _purpose(part: str, what: Exchanged) -> str:
    return f"{part}-{what.mode}-{what.power}"


def no_score(rules: Any, view: Any) -> float:  # noqa: ARG001
    """Never called: such a policy is scanned."""
    return 0.0


def no_lead(ahead: Any, behind: Any, gap: float, knobs: Any) -> float:  # noqa: ARG001
    """Never called: a policy without a lead is scanned."""
    return 0.0


def _told(function: Any, what: Exchanged) -> Callable[..., Any]:
    """The first call compiles; what Numba cannot is told with the name of the part that is the user's."""
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
            raise _refusal(what, _whose(what), reason_in(str(error))) from None

    return call


def _whose(what: Exchanged) -> str:
    """The setting that names code of the user's."""
    return next((own.setting for own in own_functions(what) if not is_ours(own.function)), "policy.name")


def _called(what: Exchanged) -> str:
    """By the policy's name, and that of a channel of another world."""
    others = [name for name in list(what.names.values())[1:] if name not in ("rayleigh", "normal", "always", "uniform")]
    return ", ".join([what.names["policy.name"], *others])


def _refusal(what: Exchanged, setting: str, reason: str) -> CannotCompileError:
    name = what.names[setting]
    return CannotCompileError(f"{setting} = {name!r} cannot be compiled ({reason}): run.engine = 'readable' runs it.")
