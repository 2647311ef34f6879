"""Whatever has happened to a run, its ledger gives it back as it was: killed after any sequence of events, it goes on alike."""

import json
import math
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.live.run import events, opening
from fedtwin.live.run.core import Core
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.state import State
from fedtwin.live.wire.protocol import Accept, Decline, Hello, Tried
from fedtwin.runs.replay import NOBODY_CHOOSES
from tests.live.run.test_live_run import CODEC, TOKENS, config_of, deliver, weights

WHAT_NEVER_CHANGES = {"_knobs_of", "policy", "given", "sync", "timeout_s", "keeps_limits", "_coordinator"}


def state_of(state: State) -> dict[str, Any]:
    """All there is, field by field, also of what a snapshot might forget; NaN is equal to itself."""
    fields = {key: value for key, value in vars(state).items() if key not in WHAT_NEVER_CHANGES}
    if state.started:
        coordinator = state.coordinator
        fields |= {"twin": coordinator.twin, "round": coordinator.round, "states": repr(coordinator.states)}
        fields["ranks"] = coordinator.ranks
    return fields


class Driver:
    """Does to a run what network and devices do, by chance."""

    def __init__(self, live: LiveRun, seed: int) -> None:
        self.live, self.core, self.chance = live, live.core, random.Random(seed)
        self.sent: list[events.Dispatched] = []

    def step(self) -> None:
        getattr(self, self.chance.choice([name for name in vars(Driver) if name.startswith("do_")]))()

    def do_join(self) -> None:
        live, name = self.live, f"d{len(self.core.members)}"
        if len(self.core.members) < 6:
            need = Tried(time_s=self.chance.uniform(0.5, 5.0), energy_j=self.chance.uniform(0.5, 5.0))
            measured = self.chance.choice([None, Tried(), need])
            live.commit(self.core.join(name, Hello(samples=50, measured=measured), live.now_s()))
        if (limits := self.core.settle_limits(live.now_s())) is not None:
            live.commit(limits)
        if self.core.ready():
            live.commit(self.core.start(live.now_s()))

    def do_ask(self) -> None:
        """As many as there are free channels, if nobody answers in between."""
        before = self.core.state.snapshot()
        asked = self.core.next_ask(1e9)
        assert asked == self.core.next_ask(1e9) and self.core.state.snapshot() == before, "asking changes nothing"
        asked = self.core.next_ask(self.live.now_s())
        if asked is not None:
            self.live.commit(asked)

    def do_answer(self) -> None:
        live, core = self.live, self.core
        questions = [*core.state.asking.questions.values()]
        if not questions:
            return
        asked = self.chance.choice(questions)
        match self.chance.randrange(10):
            case 0 | 1:
                live.commit(core.unanswered(asked, live.now_s(), "no answer"))
            case 2:
                live.quarantine(core.names[asked.device], "by chance")
                live.commit(self.chance.choice([core.left_out(asked, live.now_s()), core.unanswered(asked, live.now_s(), "")]))
            case 3 | 4:
                live.commit(core.answered(asked, Decline(reason="busy", gain=1e-9), "", live.now_s()))
            case _:
                offer = Accept(gain=1e-9, cpu_hz=2e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01)
                event = core.answered(asked, offer, next(TOKENS), live.now_s())
                live.commit(event)
                if isinstance(event, events.Dispatched):
                    self.sent.append(event)
                else:
                    name = core.names[asked.device]
                    assert core.is_quarantined(name) or core.halted or name in core.drained

    do_answer_again = do_answer

    def do_tell(self) -> None:
        """Telemetry: partly news, partly what is known."""
        if self.core.started:
            some = [device for device in range(len(self.core.names)) if self.chance.random() < 0.5]
            gains, cpus_hz = (None, 1e-9, self.chance.uniform(1e-12, 1e-8)), (None, 2e9)
            heard = {device: events.Heard(device, self.chance.choice(gains), self.chance.choice(cpus_hz)) for device in some}
            told = self.core.tell(heard, self.live.now_s())
            if told is not None:
                self.live.commit(told)
                assert self.core.tell(heard, self.live.now_s()) is None, "told once"

    do_ask_again = do_ask_more = do_ask

    def do_deliver(self) -> None:
        """In time, late, again, or after a refusal; one in ten is poisoned."""
        if self.sent:
            value = np.nan if self.chance.random() < 0.1 else self.chance.uniform(-1, 1)
            deliver(self.live, self.chance.choice(self.sent[-6:]), weights(value))

    do_deliver_more = do_deliver

    def do_close_the_round(self) -> None:
        """If there is one, and it is over."""
        self.live.close_round()

    do_close_the_round_soon = do_close_the_round

    def do_drop(self) -> None:
        if self.core.open and self.core.sync:
            self.live.commit(self.core.drop(self.chance.choice([*self.core.open.values()]), self.live.now_s()))

    def do_give_up(self) -> None:
        if self.core.open:
            task = self.chance.choice([*self.core.open.values()])
            status = self.chance.choice(["idle", "offline"])
            self.live.commit(self.core.give_up(task, self.live.now_s(), "by chance", status))  # type: ignore[arg-type]

    def do_change_a_status(self) -> None:
        if self.core.started:
            device = self.chance.randrange(len(self.core.names))
            other = {"idle": "offline", "offline": "idle"}.get(self.core.twin.devices[device].status)
            if other is not None:
                event = {"kind": "status", "at_s": self.live.now_s(), "device": device, "status": other}
                self.live.commit(events.EVENT.validate_python(event))

    def do_quarantine(self) -> None:
        if self.core.members and self.chance.random() < 0.3:
            self.live.quarantine(self.chance.choice([*self.core.members]), "by chance")

    def do_release(self) -> None:
        for name in [name for name in self.core.members if self.core.is_quarantined(name)]:
            self.live.commit(events.Released(at_s=self.live.now_s(), name=name))

    def do_steer(self) -> None:
        """Seldom against the run, and soon taken back: a run that stands still shows nothing."""
        if self.chance.random() < (0.8 if self.core.paused else 0.1):
            self.live.steer("resume" if self.core.paused else "pause")
        for name in self.core.members:
            if name in self.core.drained:
                self.live.release(name)
            elif self.chance.random() < 0.03:
                self.live.steer("drain", name=name)
        if self.chance.random() < 0.003:
            self.live.steer("finish")

    def do_set(self) -> None:
        values = {
            "run.rounds": self.chance.randint(40, 60),
            "policy.v": self.chance.uniform(1.0, 100.0),
            "objective.min_mean_samples": self.chance.uniform(1.0, 20.0),
            "objective.energy_weight": self.chance.uniform(0.0, 1.0),
            "objective.max_time_s": self.chance.uniform(0.5, 3.0),
            "objective.max_energy_j": self.chance.uniform(0.5, 3.0),
            "learning.learning_rate": self.chance.uniform(0.01, 0.1),
            "live.stop_after_s": self.chance.uniform(1.0, 100.0),
        }
        if "mixing" in aggregation_of(self.core.config).reads:
            values["learning.mixing"] = self.chance.uniform(0.1, 1.0)
        if self.chance.random() < 0.5:
            self.live.change(*self.chance.choice([*values.items()]))

    def do_evaluate(self) -> None:
        if self.core.started:
            core, at_s, found = self.core, self.live.now_s(), self.chance.random()
            self.live.commit(
                events.Measured(
                    at_s=at_s, round=core.round, version=core.version, model_at_s=at_s, energy_j=core.energy_j, test_loss=1.0,
                    test_metric=found,
                )
            )  # fmt: skip

    def do_refuse(self) -> None:
        self.live.refuse("stranger", "hello", "name: not allowed")

    def do_try_again(self) -> None:
        if self.core.waits_for_nothing:
            self.live.commit(self.core.offer_again(self.live.now_s()))


OWN_RULE = "tests.live.gathering_rule:RULE"


QUICK = [("fedasync", "async"), ("fedbuff", "async"), (OWN_RULE, "async"), ("fedavg", "sync"), (OWN_RULE, "sync")]
QUICK += [("ca2fl", "async")]
SLOW = [("change", "async"), ("fedavgm", "sync"), ("ca2fl", "sync"), ("fadas", "async"), ("window", "async")]


@pytest.mark.parametrize(("aggregation", "mode"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 150))
def test_a_killed_run_comes_back_as_it_was(aggregation: str, mode: str, seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        more = {"fleet.channels": 2, "learning.aggregation": aggregation, "learning.buffer_size": 3, "live.max_staleness": 9}
        more["policy.name"] = "tests.live.remembering_policy:POLICY"
        more["live.limits_from_fleet"] = ["max_time_s", "max_energy_j"]
        if aggregation == "ca2fl":
            more["learning.aggregation_settings.int8_beyond"] = 1
        if mode == "sync":
            more |= {
                "run.mode": mode,
                "run.sync_timeout_s": 50.0,
                "live.time_scale": 1e-4,
            }  # a round that nobody takes is soon over
        live = opening.begin(Path(folder, "run"), config_of(**more), "main", CODEC.encode(weights(0.0)))
        driver = Driver(live, seed)
        for _ in range(steps):
            driver.step()
            statuses = {name: live.core.twin.devices[n].status for n, name in enumerate(live.core.names)}
            for name, status in statuses.items():
                assert (status == "quarantined") == live.core.is_quarantined(name), (name, status)
            taken = len(live.core.open) + live.core.state.asking.held
            assert taken <= live.core.channels or mode == "sync", "one question a free channel"
        state = live.core.state
        restored = State.restore(live.config, json.loads(json.dumps(state.snapshot())))
        assert state_of(restored) == state_of(state) and restored.snapshot() == state.snapshot()
        assert Core(live.config, restored).next_ask(1e9) == live.core.next_ask(1e9)
        live.close()
        again = opening.resume(Path(folder, "run"))
        resumed = events.Resumed(at_s=again.core.last_at_s)
        state.apply(resumed)
        restored.apply(resumed)
        assert state_of(again.core.state) == state_of(state) == state_of(restored)
        assert again.core.state.snapshot() == state.snapshot()
        assert again.model.encoded == live.model.encoded
        assert _gathered(again) == _gathered(live)
        assert again.core.next_ask(1e9) == live.core.next_ask(1e9)
        again.close()


def _gathered(live: LiveRun) -> tuple[Any, list[Any]]:
    held = live.model._rule.hold(live.model._state, live.model.weights.floats)
    return held.form, [array.tolist() for array in held.arrays]


def test_a_snapshot_that_is_not_the_policys_is_refused_in_a_sentence() -> None:
    config = config_of(**{"policy.name": "tests.live.remembering_policy:POLICY"})
    state = State(config)
    for number in range(3):
        state.apply(events.Joined(at_s=0.0, name=f"d{number}", samples=50, hardware={}, measures=[]))
    state.apply(events.Started(at_s=0.0, names=["d0", "d1", "d2"]))
    snapshot = state.snapshot()
    other = config_of(**{"policy.name": "cu-ucb"})
    with pytest.raises(FedtwinError, match=r"'cu-ucb' keeps nothing of every device, and the snapshot has \['heard', 'last'\]"):
        State.restore(other, snapshot)
    assert State.restore(other, snapshot, NOBODY_CHOOSES).twin == state.twin, "who decides nothing needs no policy"
    with pytest.raises(FedtwinError, match=r"The snapshot cannot be used: applied = 'many' \(Input should be a valid integer"):
        State.restore(config, {**snapshot, "applied": "many"})
    with pytest.raises(FedtwinError, match=r"schema_version = 2 is not 1"):
        State.restore(config, {**snapshot, "schema_version": 2})


def test_a_score_without_bounds_is_read_back() -> None:
    asked = events.Asked(at_s=0.0, round=1, device=0, score=math.inf, queue=0.0, total_queue=0.0)
    assert events.EVENT.validate_json(asked.model_dump_json(exclude_none=True)) == asked
