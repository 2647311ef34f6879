"""The live core decides as the simulator does, and comes back from its ledger as it was."""

import heapq
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import REASONS, full_power_plan, optimal_plan
from fedtwin.live.run import events
from fedtwin.live.run.admission import believe
from fedtwin.live.run.book import Book
from fedtwin.live.run.core import Core
from fedtwin.live.run.ledger import Ledger, cut_torn_line, read_events
from fedtwin.live.run.tables import _trained, summary_of, tables_of
from fedtwin.live.wire.protocol import Accept, Decline, Done, Hello, Own, Reading
from fedtwin.policies import load_policy, power_rule
from fedtwin.policies.base import Policy
from fedtwin.records import to_table
from fedtwin.registry import POLICIES
from fedtwin.sim import simulate
from fedtwin.world.world import World

HONEST = [name for name in POLICIES if isinstance(load_policy(name), Policy)]


def config_of(policy: str, devices: int, channels: int, rounds: int, seed: int, **more: object) -> Config:
    named = {"fleet.devices": devices, "fleet.channels": channels, "run.rounds": rounds, "run.seed": seed}
    return build_config({}, {**named, "policy.name": policy, "policy.feedback": "on-arrival", **more})


UNLIKE = {
    "fleet.max_power_w": [0.01, 0.5],
    "fleet.cycles_per_sample": [2e6, 8e6],
    "fleet.update_bits": [2e6, 9e6],
    "fleet.max_time_s": [0.5, 1.2],
    "fleet.max_energy_j": [0.3, 2.0],
    "fleet.samples_spread": [0.0, 0.8],
}


class Script:
    """Plays the part of network and devices: they answer and report what the simulator's devices would."""

    def __init__(self, config: Config) -> None:
        self.config, self.core, self.world = config, Core(config), World(config)
        self.plan = optimal_plan if power_rule(config) == "optimal" else full_power_plan
        self.clock_s, self.tokens = 0.0, 0
        self.log: list[events.Event] = []
        self.in_flight: list[tuple[float, int, str, Done]] = []

    def happen(self, event: events.Event) -> None:
        self.log.append(event)
        self.core.apply(event)

    def begin(self) -> None:
        for device, known in enumerate(self.world.fleet):
            own = {name: getattr(known, name) for name in Own.model_fields}
            self.happen(self.core.join(f"d{device}", Hello(samples=known.samples, own=Own(**own)), 0.0))
        assert self.core.ready()
        self.happen(self.core.start(0.0))

    def ask_all(self) -> None:
        while (asked := self.core.next_ask(self.clock_s)) is not None:
            self.happen(asked)
            if isinstance(asked, events.Asked):
                self.answer(asked)

    def answer(self, asked: events.Asked) -> None:
        draw = self.world.draw(asked.device, asked.round, 0.0)
        plan = self.plan(self.world.terms_of(asked.device), draw.gain, draw.cpu_hz, draw.samples)
        answer: Accept | Decline = Decline(reason=REASONS[plan.reason], gain=draw.gain, cpu_hz=draw.cpu_hz)
        if plan.feasible:
            answer = Accept(
                gain=draw.gain, cpu_hz=draw.cpu_hz, power_w=plan.power_w, compute_s=plan.compute_s,
                upload_s=plan.upload_s, compute_j=plan.compute_j, upload_j=plan.upload_j, samples=draw.samples,
            )  # fmt: skip
        self.tokens += 1
        event = self.core.answered(asked, answer, f"{self.tokens:032x}", self.clock_s)
        self.happen(event)
        if isinstance(event, events.Dispatched):
            done = Done(
                token=event.token, version=event.version, samples=draw.samples, model_bytes=0,
                train_loss=None, cpu_hz=draw.cpu_hz, cpu_source="modelled", power_w=plan.power_w,
                compute_s=_modelled(plan.compute_s), upload_s=_modelled(plan.upload_s),
                compute_j=_modelled(plan.compute_j), upload_j=_modelled(plan.upload_j), link_s=_modelled(0.0),
            )  # fmt: skip
            arrives_s = self.clock_s + plan.compute_s + plan.upload_s
            heapq.heappush(self.in_flight, (arrives_s, asked.device, event.token, done))

    def end_the_round(self) -> None:
        """A synchronous one: uploads come in the order of their times, who is late is dropped at the timeout."""
        assert self.core.current is not None
        opened_s, timeout_s = self.core.current.opened.at_s, self.core.timeout_s
        while self.in_flight:
            self.clock_s, device, token, done = heapq.heappop(self.in_flight)
            if done.compute_s.value + done.upload_s.value > timeout_s:
                self.clock_s = opened_s + timeout_s
                self.happen(self.core.drop(self.core.open[token], self.clock_s))
                continue
            believed = believe(done, self.clock_s - opened_s, self.world.terms, self.core.live)
            self.happen(_applied(self.core, token, device, self.clock_s, believed.cost, believed.compute_s))
        self.clock_s = max(self.clock_s, opened_s + (0.0 if self.core.current.selections else self.core.empty_round_s))
        assert self.core.round_is_over(self.clock_s)
        self.happen(self.core.close_round(self.clock_s, self.core.version + 1, changed=True, state=None))

    def arrive(self) -> None:
        if self.core.waits_for_nothing:
            self.clock_s += self.world.terms.max_time_s
            self.happen(self.core.offer_again(self.clock_s))
            return
        self.clock_s, device, token, done = heapq.heappop(self.in_flight)
        elapsed_s = self.clock_s - self.core.open[token].sent.at_s
        believed = believe(done, elapsed_s, self.core.terms_of(device), self.core.live)
        assert believed.agrees
        self.happen(_applied(self.core, token, device, self.clock_s, believed.cost, believed.compute_s))

    def play(self) -> None:
        self.begin()
        while self.core.sync and not self.core.done:
            self.ask_all()
            self.end_the_round()
        self.ask_all()
        while self.core.round < self.config.run.rounds and not self.core.sync:
            self.arrive()
            self.ask_all()


def _modelled(value: float) -> Reading:
    return Reading(value=value, source="modelled")


def _applied(core: Core, token: str, device: int, at_s: float, cost: float, compute_s: float) -> events.Applied:
    sent = core.open[token].sent
    return events.Applied(
        at_s=at_s, token=token, device=device, version=core.version + 1, changed=True, staleness=core.version - sent.version,
        late=False, compute_s=compute_s, upload_s=sent.upload_s, compute_j=sent.compute_j, upload_j=sent.upload_j, cost=cost,
        train_loss=None, elapsed_s=at_s - sent.at_s, reported_s=0.0, believed=True, sources={}, link_s=0.0, uploaded_bytes=0,
    )  # fmt: skip


def decisions(log: list[events.Event]) -> list[tuple[int, int, float, float, float]]:
    asked = [event for event in log if isinstance(event, events.Asked) and event.round > 0]
    return [(event.round, event.device, event.score, event.queue, event.total_queue) for event in asked]


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@pytest.mark.parametrize("policy", HONEST)
@pytest.mark.parametrize(("devices", "channels", "max_time_s"), [(12, 5, 1.0), (9, 9, 0.7), (6, 4, 0.42)])
def test_the_live_core_decides_as_the_simulator(policy: str, devices: int, channels: int, max_time_s: float) -> None:
    config = config_of(policy, devices, channels, 300, 3, **{"objective.max_time_s": max_time_s, "policy.power": "optimal"})
    script = Script(config)
    script.play()
    rounds = simulate(config).rounds.to_pylist()
    expected = [(row["round"], row["device"], row["index"], row["queue"], row["total_queue"]) for row in rounds]
    assert decisions(script.log) == expected
    if max_time_s < 0.5:
        assert any(row["declined"] for row in rounds)


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@pytest.mark.parametrize("policy", HONEST)
@pytest.mark.parametrize(
    ("devices", "channels", "max_time_s", "timeout_s"),
    [(12, 5, 1.0, None), (12, 5, 1.0, 0.6), (9, 9, 0.7, 0.6), (6, 4, 0.42, 0.4), (6, 4, 0.42, 0.05)],
)
@pytest.mark.parametrize("unlike", [False, True])
def test_synchronous_rounds_are_those_of_the_simulator(
    policy: str, devices: int, channels: int, max_time_s: float, timeout_s: float | None, unlike: bool
) -> None:
    more: dict[str, Any] = {"objective.max_time_s": max_time_s, "policy.power": "optimal" if max_time_s < 1.0 else "max"}
    more |= UNLIKE if unlike else {}
    config = config_of(policy, devices, channels, 300, 3, **more, **{"run.mode": "sync", "run.sync_timeout_s": timeout_s})
    script, book = Script(config), Book(config)
    script.play()
    simulated = simulate(config)
    rounds = simulated.rounds.to_pylist()
    expected = [(row["round"], row["device"], row["index"], row["queue"], row["total_queue"]) for row in rounds]
    assert decisions(script.log) == expected
    for event in script.log:
        book.read(event)
    live = to_table(book.rows, simulated.rounds.schema)
    same = ["round", "device", "compute_s", "upload_s", "compute_j", "upload_j", "cost", "declined", "decline_reason"]
    for name in [*same, *(["dropped"] if timeout_s is not None else [])]:
        assert live[name].to_pylist() == simulated.rounds[name].to_pylist(), name
    means = summary_of(script.core.state, book, lambda summary: summary.as_dict())
    for name in ("mean_cost", "mean_time_s", "mean_energy_j", "rounds", "declines", "passed_rounds", "least_mean_samples"):
        assert means[name] == getattr(simulated.summary, name), name
    assert means.get("drops") == simulated.summary.drops and means.get("wasted_energy_j") == simulated.summary.wasted_energy_j
    assert [device.selections for device in script.core.twin.devices] == [
        sum(row["device"] == n and not row["declined"] for row in rounds) for n in range(devices)
    ]


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@pytest.mark.parametrize("policy", ["cu-ucb", "twin-dpp"])
def test_it_decides_as_the_simulator_on_devices_that_are_unlike(policy: str) -> None:
    config = config_of(policy, 12, 5, 200, 3, **{"policy.bonus_scale": 0.0, **UNLIKE})
    script = Script(config)
    script.play()
    result = simulate(config)
    rounds = result.rounds.to_pylist()
    expected = [(row["round"], row["device"], row["index"], row["queue"], row["total_queue"]) for row in rounds]
    assert decisions(script.log) == expected
    book = Book(config)
    for event in script.log:
        book.read(event)
    told = [(row.samples, row.power_w, row.time_ok, row.energy_ok) for row in book.rows if row.round > 0 and not row.declined]
    kept = [row for row in rounds if not row["declined"]]
    assert told == [(row["samples"], row["power_w"], row["time_ok"], row["energy_ok"]) for row in kept]
    devices = tables_of(script.core.state, book)["devices.parquet"]
    for name in Own.model_fields:
        assert devices[name].to_pylist() == result.devices[name].to_pylist()
    trained = _trained(script.core.state, book)
    mixed_in = [task["round"] for task in book.tasks.values() if task["outcome"] == "applied"]
    for device in range(12):
        of_device = [row["samples"] for row in kept if row["device"] == device and row["round"] in mixed_in]
        assert trained[device] == sum(of_device)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"samples": 60}, None),
        ({"samples": 39}, "offer: samples = 39, and 50 were announced"),
        ({"samples": 61}, "offer: samples = 61, and 50 were announced"),
        ({"power_w": 0.02}, "offer: power_w = 0.02 is over max_power_w"),
        ({"upload_s": 0.6}, "offer: 0.7 s is over max_time_s"),
        ({"upload_j": 0.5}, "offer: 0.6 J is over max_energy_j"),
    ],
)
def test_an_offer_is_held_against_what_the_device_announced(changes: dict[str, object], reason: str | None) -> None:
    core = Core(config_of("cu-ucb", 1, 1, 10, 0))
    own = Own(max_power_w=0.01, max_time_s=0.5, max_energy_j=0.4, samples_spread=0.2)
    core.apply(core.join("d0", Hello(samples=50, own=own), 0.0))
    core.apply(core.start(0.0))
    asked = core.next_ask(0.0)
    assert isinstance(asked, events.Asked)
    core.apply(asked)
    offer = Accept(
        gain=1e-9, cpu_hz=2e9, power_w=0.01, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.1
    ).model_copy(update=changes)  # fmt: skip
    event = core.answered(asked, offer, "0" * 32, 1.0)
    if reason is not None:
        assert isinstance(event, events.Declined) and event.reason == reason
        return
    assert isinstance(event, events.Dispatched) and event.samples == changes.get("samples", 50)
    assert event.cost == pytest.approx(0.5 * 0.2 / 0.5 + 0.5 * 0.2 / 0.4)
    core.apply(event)
    assert core.twin.devices[0].samples.value == event.samples
    old = events.EVENT.validate_json(event.model_dump_json(exclude={"samples"}))
    assert isinstance(old, events.Dispatched) and core.samples_of(old) == 50, "a ledger from before"


def test_full_power_parity() -> None:
    config = config_of("random", 10, 4, 200, 1)
    script = Script(config)
    script.play()
    assert [d[1] for d in decisions(script.log)] == [row["device"] for row in simulate(config).rounds.to_pylist()]


@given(
    seed=st.integers(0, 10**6), devices=st.integers(1, 8), rounds=st.integers(1, 40), cut=st.integers(0, 400),
    channels=st.integers(1, 8), sync=st.booleans(), timeout_s=st.sampled_from([None, 0.3, 0.6]),
)  # fmt: skip
def test_a_replay_gives_the_state_back(
    seed: int, devices: int, rounds: int, cut: int, channels: int, sync: bool, timeout_s: float | None
) -> None:
    mode = {"run.mode": "sync", "run.sync_timeout_s": timeout_s} if sync else {}
    config = config_of("cu-ucb", devices, min(channels, devices), rounds, seed, **mode)
    script = Script(config)
    script.play()
    events_so_far = script.log[: max(devices + 1, cut)]
    whole, again = Core(config), Core(config)
    for event in script.log:
        whole.apply(event)
    assert whole.state.snapshot() == script.core.state.snapshot()
    for event in events_so_far:
        again.apply(event)
    following = script.log[len(events_so_far) :]
    if following and isinstance(following[0], events.Asked | events.Passed | events.Opened | events.Filled):
        assert again.next_ask(following[0].at_s) == following[0]


def test_the_ledger_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, fsync=True)
    first = events.Passed(at_s=1.0, round=1)
    ledger.append(first)
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"passed","at_s":2.0,')
    assert list(read_events(path)) == [first]
    cut_torn_line(path)
    ledger = Ledger(path, fsync=False, after=json.loads(path.read_bytes())["chain"])
    second = events.Passed(at_s=3.0, round=2)
    ledger.append(second)
    ledger.close()
    assert list(read_events(path)) == [first, second]


def test_a_policys_own_error_is_one_sentence_in_the_live_core_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "live_failing.py").write_text(
        "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: {}[view.device], power='optimal')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    script = Script(config_of("live_failing:POLICY", 4, 2, 10, 0))
    with pytest.raises(FedtwinError, match=r"'live_failing:POLICY' failed in round 1 for device \d: KeyError: .*, line 2\)"):
        script.play()
