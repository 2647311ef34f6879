"""Holds compiled rounds of a user's own policy or world against readable ones, while a run is played.

At random rounds the world's own functions draw for some devices and the policy's score those that are free, in plain Python:
the compiled numbers must be the same to the last bit, the choice must be theirs, the tournament must choose as a look at
everybody does, and a lead must last as long as the policy says.
"""

import math
import random
import struct
import time
from collections.abc import Callable, Iterator

import numpy as np

from fedtwin.compiling import is_ours
from fedtwin.config import Config
from fedtwin.errors import EnginesDifferError, FedtwinError
from fedtwin.formulas.power import full_power_plan, no_answer, optimal_plan
from fedtwin.policies import Policy, knobs_of
from fedtwin.policies.base import View, last_if_nan
from fedtwin.policies.checks import sentence_of_hidden_look, with_other_facts
from fedtwin.policies.failures import score_of, sentence_of_nan
from fedtwin.prediction import predict
from fedtwin.sim.fast.compile import Exchanged, Kernels, own_functions
from fedtwin.sim.fast.layout import NOBODY
from fedtwin.sim.fast.state import Start
from fedtwin.sim.fast.steps import NO_DRAW, NO_SCORES
from fedtwin.twin.state import mean_cost, mean_heard, queue_at
from fedtwin.world.fleet import fleet_columns
from fedtwin.world.world import Draws

LEAST_LOOKS = 64
SHARE_OF_TIME = 0.03
MOST_DEVICES = 1000
PAIRS = 8
SHORTEST_STRETCH_S = 0.005


class Watch:
    """Looks at one run of a policy or a world that is not fedtwin's own."""

    def __init__(self, config: Config, exchanged: Exchanged, start: Start, own: Kernels) -> None:
        self._exchanged, self._own = exchanged, own
        self._name, self._policy, self._gain_known = config.policy.name, exchanged.policy, exchanged.gain
        self._state, self._rules = start.state, start.rules
        functions_of_users = (own for own in own_functions(exchanged) if not is_ours(own.function))
        self._users = list(dict.fromkeys(own.setting for own in functions_of_users))
        self._world_is_users = any(setting != "policy.name" for setting in self._users)
        self._world, self._knobs = Draws(config, fleet_columns(config)), knobs_of(config)
        self._plan = optimal_plan if exchanged.power == "optimal" else full_power_plan
        self._random = random.Random(config.run.seed)
        rounds = config.run.rounds
        chosen = range(rounds) if rounds <= LEAST_LOOKS else self._random.sample(range(rounds), LEAST_LOOKS)
        self._due = sorted({0, *chosen}, reverse=True)
        self._begun, self._looked_s, self.looks = time.monotonic(), 0.0, 0

    def pause_at(self, round_: int, stretch_end: int) -> int:
        """The round before which the engine has to stop: for the next look, or at the end of its stretch."""
        while self._due and self._due[-1] < round_:
            self._due.pop()
        return min(stretch_end, self._due[-1]) if self._due else stretch_end

    def stretch_s(self, usual_s: float) -> float:
        """As long as looks take their share of the time, and no longer than usual."""
        each = self._looked_s / max(1, self.looks)
        return min(usual_s, max(each / SHARE_OF_TIME, SHORTEST_STRETCH_S))

    def look(self) -> None:
        """If it is time for one: between two rounds."""
        done = int(self._state.run["round"][0])
        due = bool(self._due) and self._due[-1] <= done
        begun = time.monotonic()
        if not due and self._looked_s > SHARE_OF_TIME * (begun - self._begun):
            return
        while self._due and self._due[-1] <= done:
            self._due.pop()
        self._look(done + 1)
        self.looks += 1
        self._looked_s += time.monotonic() - begun

    def sentence_of(self, error: Exception) -> FedtwinError:
        """What failed in compiled code, which knows no lines: the same scores in plain Python tell where.

        Where they do not fail, only a readable run can tell: compiled code refuses a few numbers that Python does not, and a
        lead is asked for in compiled code alone.
        """
        round_ = int(self._state.run["round"][0])
        free = np.flatnonzero(self._state.devices["free"]).tolist()
        if isinstance(error, FloatingPointError) and str(error) == NO_SCORES:
            return FedtwinError(sentence_of_nan(self._name, round_))
        try:
            if self._world_is_users:
                for device in range(min(len(self._state.devices), MOST_DEVICES)):
                    self._world.draw(device, round_, self._clock_s)
                    self._world.draw(device, round_ + 1, self._clock_s)
            for device in free[:MOST_DEVICES]:
                self.score(device, round_)
        except FedtwinError as found:
            return found
        suspects = [name for name in self._users if str(error) != NO_DRAW or name != "policy.name"]
        parts = " or ".join(f"{name} = {self._exchanged.names[name]!r}" for name in suspects) or "[world]"
        return EnginesDifferError(
            f"{parts} fails when it is compiled (round {round_}: {type(error).__name__}: {error}), and not in plain Python as "
            "far as was looked: run.engine = 'readable' runs it as it is written."
        )

    @property
    def _clock_s(self) -> float:
        return float(self._state.run["clock_s"][0])

    def _look(self, round_: int) -> None:
        state, rules = self._state, self._rules
        if self._world_is_users:
            self._compare_draws(round_)
        free = np.flatnonzero(state.devices["free"])
        if len(free) == 0:
            self._compare_busy(round_)
            return
        asked = free.tolist()
        if len(asked) > MOST_DEVICES:
            asked = self._random.sample(asked, MOST_DEVICES)
        readable = {device: self.score(device, round_) for device in asked}
        best = int(self._own.best(state, rules, round_, True))
        if rules.indexed and (found := int(self._own.best(state, rules, round_, False))) != best:
            raise self._differ(round_, f"by its lead device {found} is chosen, by a look at everybody device {best}")
        for device in {best, self._runner_up(round_, best)} - {NOBODY, *readable}:
            readable[device] = self.score(device, round_)
        asked = list(readable)
        compiled = np.zeros(len(asked))
        self._own.scores(state, rules, round_, np.array(asked, np.int64), compiled)
        for device, other in zip(asked, compiled.tolist(), strict=True):
            if not _same(readable[device], other):
                raise self._differ(round_, f"the score of device {device} is {readable[device]!r}, compiled {other!r}")
        ranks = state.devices["rank"]
        expected = min(asked, key=lambda device: (readable[device], ranks[device]))
        if expected != best:
            raise self._differ(round_, f"device {expected} is chosen, compiled device {best}")
        if rules.indexed:
            self._hold_leads(round_, asked)

    def _compare_draws(self, round_: int) -> None:
        """A few devices look at their links and CPUs."""
        devices = len(self._state.devices)
        asked = self._random.sample(range(devices), min(devices, PAIRS))
        compiled = np.zeros((len(asked), 4))
        self._own.draws(self._state, self._rules, round_, np.array(asked, np.int64), compiled)
        for device, other in zip(asked, compiled.tolist(), strict=True):
            draw = self._world.draw(device, round_, self._clock_s)
            for setting, one, found in zip(("channel", "load", "availability", "sensing"), draw, other, strict=True):
                if not _same(float(one), found):
                    name = f"world.{setting}"
                    raise EnginesDifferError(
                        f"{name} = {self._exchanged.names[name]!r} draws otherwise when it is compiled (round {round_}, device "
                        f"{device}: {one!r}, compiled {found!r}): run.engine = 'readable' runs it as it is written."
                    )

    def _runner_up(self, round_: int, best: int) -> int:
        devices = self._state.devices
        devices["free"][best] = False
        try:
            return int(self._own.best(self._state, self._rules, round_, True))
        finally:
            devices["free"][best] = True

    def _compare_busy(self, round_: int) -> None:
        """Nobody is free: a few are scored all the same, where a score can be had of a device that is busy."""
        devices = len(self._state.devices)
        for device in self._random.sample(range(devices), min(devices, PAIRS)):
            found = np.zeros(1)
            try:
                one = self.score(device, round_)
                self._own.scores(self._state, self._rules, round_, np.array([device], np.int64), found)
            except Exception:
                continue
            if not _same(one, float(found[0])):
                raise self._differ(round_, f"the score of device {device} is {one!r}, compiled {float(found[0])!r}")

    def _hold_leads(self, round_: int, free: list[int]) -> None:
        """For as long as a lead is said to last, who is behind does not pass."""
        policy, knobs = self._policy, self._knobs
        if not isinstance(policy, Policy) or policy.lead is None:
            return
        for device in free[:PAIRS]:
            view = self.view(device, round_)
            if not _same(self._score(with_other_facts(view)), self._score(view)):
                raise FedtwinError(sentence_of_hidden_look(self._name, view))
        for first, second in self._pairs(free):
            ranked = sorted((self.score(one, round_), int(self._state.devices["rank"][one]), one) for one in (first, second))
            (score_a, _, a), (score_b, _, b) = ranked
            rounds = policy.lead(self.view(a, round_), self.view(b, round_), score_b - score_a, knobs)
            last = min(math.floor(rounds) if rounds < 1e15 else 10**15, self._rules.rounds - round_)
            for later in sorted({1, 2, last // 2, last - 1, last} & set(range(1, last + 1))) if last < 10**6 else (1, last):
                behind = [(self.score(one, round_ + later), int(self._state.devices["rank"][one])) for one in (a, b)]
                if behind[1] < behind[0]:
                    raise self._differ(
                        round_, f"device {b} passes device {a} after {later} rounds, and its lead said {rounds:g}"
                    )

    def _pairs(self, free: list[int]) -> Iterator[tuple[int, int]]:
        for _ in range(PAIRS if len(free) > 1 else 0):
            first, second = self._random.sample(free, 2)
            yield first, second

    def score(self, device: int, round_: int) -> float:
        """By the policy's own function, in plain Python."""
        return self._score(self.view(device, round_))

    def _score(self, view: View) -> float:
        true_cost = () if isinstance(self._policy, Policy) else (self._true_cost(view.device, view.round),)
        return last_if_nan(score_of(self._name, self._policy.score, view, *true_cost, self._knobs))

    def view(self, device: int, round_: int) -> View:
        fleet, policy, d_min = self._state.fleet, self._policy, self._knobs.min_mean_samples
        known, heard = fleet.devices[device], fleet.heard[device]
        number: Callable[[str], float] = lambda name: float(known[name])  # noqa: E731
        observations, gain = int(known["observations"]), self._gain(device, round_)
        cpu_hz, samples = mean_heard(float(heard["cpu_hz_sum"]), int(heard["gains"])), number("samples")
        return View(
            round_,
            device,
            samples,
            int(known["selections"]),
            observations,
            mean_cost(number("cost_sum"), observations),
            queue_at(number("queue"), int(known["queue_round"]), round_, d_min),
            gain,
            number("compute_s"),
            0.0 if self._gain_known == "current" else self._clock_s - float(heard["gain_at_s"]),
            self._clock_s - float(heard["compute_at_s"]),
            int(self._state.run["version"][0]) - int(heard["version"]),
            math.nan,
            predict(self._plan, self._world.terms_of(device), gain, cpu_hz, samples) if policy.predicts else (),
            policy.state(*fleet.own[device].tolist()) if policy.state is not None else (),
        )

    def _gain(self, device: int, round_: int) -> float:
        fleet = self._state.fleet
        if self._gain_known == "current":
            return self._world.gain(device, round_, self._clock_s)
        if self._gain_known == "mean":
            return mean_heard(float(fleet.heard[device]["gain_sum"]), int(fleet.heard[device]["gains"]))
        return float(fleet.devices[device]["gain"])

    def _true_cost(self, device: int, round_: int) -> float:
        draw = self._world.draw(device, round_, self._clock_s)
        if not draw.available:
            return no_answer().cost
        return self._plan(self._world.terms_of(device), draw.gain, draw.cpu_hz, draw.samples).cost

    def _differ(self, round_: int, what: str) -> EnginesDifferError:
        return EnginesDifferError(
            f"policy.name = {self._name!r} decides otherwise when it is compiled (round {round_}: {what}): "
            "run.engine = 'readable' runs it as it is written."
        )


def _same(one: float, other: float) -> bool:
    return struct.pack("<d", one) == struct.pack("<d", other)
