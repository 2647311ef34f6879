"""One question is open per free channel: a slow answer takes nobody else's time, and quick ones change nothing."""

import random

import pytest

from fedtwin.live.run import events
from fedtwin.live.run.book import Book
from fedtwin.live.run.core import Core
from fedtwin.live.wire.protocol import Accept, Decline, Hello
from fedtwin.records import to_table
from fedtwin.sim import simulate
from tests.live.run.test_core import HONEST, UNLIKE, Script, config_of, decisions

OFFER = Accept(gain=1e-9, cpu_hz=2e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01)


class Slow(Script):
    """All questions that can be open are open before anybody answers, and answers come in any order."""

    def __init__(self, config: object, seed: int) -> None:
        super().__init__(config)  # type: ignore[arg-type]
        self.chance, self.most_open = random.Random(seed), 0

    def ask_all(self) -> None:
        questions = self.core.state.asking.questions
        while True:
            while (asked := self.core.next_ask(self.clock_s)) is not None:
                self.happen(asked)
            self.most_open = max(self.most_open, len(questions))
            if not questions:
                return
            self.answer(self.chance.choice(list(questions.values())))


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@pytest.mark.parametrize("policy", HONEST)
@pytest.mark.parametrize(("devices", "channels", "max_time_s"), [(12, 5, 1.0), (6, 4, 0.42)])
def test_a_synchronous_round_is_the_simulators_whoever_answers_first(
    policy: str, devices: int, channels: int, max_time_s: float
) -> None:
    more = {"objective.max_time_s": max_time_s, "run.mode": "sync", "run.sync_timeout_s": 0.6, **UNLIKE}
    config = config_of(policy, devices, channels, 150, 3, **more)
    script, book, simulated = Slow(config, 7), Book(config), simulate(config)
    script.play()
    assert script.most_open == channels
    rows = simulated.rounds.to_pylist()
    assert sorted(decisions(script.log)) == sorted(
        (row["round"], row["device"], row["index"], row["queue"], row["total_queue"]) for row in rows
    )
    for event in script.log:
        book.read(event)
    live = to_table(book.in_order(), simulated.rounds.schema)
    for name in ("round", "device", "compute_s", "upload_s", "compute_j", "upload_j", "cost", "declined", "dropped"):
        assert live[name].to_pylist() == simulated.rounds[name].to_pylist(), name


@pytest.mark.parametrize("max_time_s", [1.0, 0.42])
def test_rounds_that_are_open_side_by_side_lose_no_queue(max_time_s: float) -> None:
    """Every round is taken once or passes, and what a device was asked at is its queue as its selections make it."""
    config = config_of("cu-ucb", 12, 5, 200, 3, **{"objective.max_time_s": max_time_s})
    script = Slow(config, 5)
    script.play()
    queues: dict[int, tuple[float, int]] = {}
    ended: list[int] = []
    for event in script.log:
        if isinstance(event, events.Asked) and event.round > 0:
            queue, since = queues.get(event.device, (0.0, 1))
            assert since <= event.round, "it has taken a later round"
            assert event.queue == pytest.approx(queue + (event.round - since) * config.objective.min_mean_samples)
        elif isinstance(event, events.Dispatched) and event.round > 0:
            queue, since = queues.get(event.device, (0.0, 1))
            now = queue + (event.round - since + 1) * config.objective.min_mean_samples
            queues[event.device] = max(now - (event.samples or 0), 0.0), event.round + 1
            ended.append(event.round)
        elif isinstance(event, events.Passed):
            ended.append(event.round)
    assert sorted(ended) == list(range(1, 201)) and script.most_open > 1
    book = Book(config)
    for event in script.log:
        book.read(event)
    assert [row.round for row in book.in_order()] == sorted(row.round for row in book.rows)


def started(devices: int, channels: int, **more: object) -> Core:
    core = Core(config_of("fairness", devices, channels, 1000, 0, **more))
    for number in range(devices):
        core.apply(core.join(f"d{number}", Hello(samples=50), 0.0))
    core.apply(core.start(0.0))
    return core


def asked_now(core: Core, at_s: float = 0.0) -> list[events.Asked]:
    """All that are asked without an answer in between."""
    found = []
    while (event := core.next_ask(at_s)) is not None:
        core.apply(event)
        if isinstance(event, events.Asked):
            found.append(event)
    return found


def take(core: Core, asked: events.Asked, number: int) -> events.Dispatched:
    sent = core.answered(asked, OFFER, f"{number:032x}", 0.0)
    assert isinstance(sent, events.Dispatched)
    core.apply(sent)
    return sent


def upload(core: Core, sent: events.Dispatched) -> None:
    core.apply(
        events.Applied(
            at_s=0.0, token=sent.token, device=sent.device, version=core.version + 1, changed=True,
            staleness=core.version - sent.version, late=False, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01,
            cost=0.2, elapsed_s=0.2, reported_s=0.2, believed=True, sources={}, link_s=0.0, uploaded_bytes=0,
        )
    )  # fmt: skip


def test_a_slow_answer_takes_nobody_elses_time() -> None:
    core = started(3, 3)
    first = asked_now(core)
    assert len(first) == len({one.device for one in first}) == 3 and {one.round for one in first} == {0}
    assert core.next_ask(0.0) is None, "no channel is left to ask for"
    slow, *quick = first
    tasks = [take(core, one, number) for number, one in enumerate(quick)]
    for number in range(10, 60):
        upload(core, tasks.pop(0))
        (asked,) = asked_now(core)
        assert asked.device != slow.device, "who is being asked is busy"
        tasks.append(take(core, asked, number))
    assert core.round == 50
    core.apply(core.answered(slow, Decline(reason="not now"), "", 0.0))
    assert core.twin.devices[slow.device].declines == 0, "the first dispatches teach nothing"
    (again,) = asked_now(core)
    assert (again.round, again.device) == (51, slow.device), "its channel is free"


def test_a_round_that_is_declined_late_goes_on_or_passes() -> None:
    """The next device is asked in the same round, unless it has taken a later one since: then there is a new round for it."""
    core = started(4, 2)
    first = [take(core, one, number) for number, one in enumerate(asked_now(core))]
    upload(core, first[0])
    (slow,) = asked_now(core)
    assert slow.round == 1
    upload(core, first[1])
    (quick,) = asked_now(core)
    assert quick.round == 2
    sent = take(core, quick, 10)
    core.apply(core.answered(slow, Decline(reason="not now"), "", 0.0))
    (same,) = asked_now(core)
    assert same.round == 1 and same.device not in (slow.device, quick.device)
    upload(core, sent)
    (later,) = asked_now(core)
    assert later.round == 3
    for asked in (same, later):
        core.apply(core.answered(asked, Decline(reason="not now"), "", 0.0))
    again = asked_now(core)
    assert {one.round for one in again} <= {1, 3}
    for one in again:
        assert core.twin.devices[one.device].queue_round <= one.round


def test_nobody_is_asked_over_and_over_while_somebody_thinks() -> None:
    core = started(2, 2)
    slow, quick = asked_now(core)
    sent = take(core, quick, 1)
    upload(core, sent)
    asked = 0
    while one := asked_now(core):
        asked += len(one)
        for each in one:
            core.apply(core.answered(each, Decline(reason="not now"), "", 0.0))
        assert asked < 5
    assert asked == 1 and not core.waits_for_nothing
    core.apply(core.unanswered(slow, 1.0, "no answer"))
    assert core.waits_for_nothing
    core.apply(core.offer_again(2.0))
    assert [one.device for one in asked_now(core)] == [quick.device]


def test_nobody_answers_an_edge_server_that_is_gone() -> None:
    core = started(3, 2)
    before = asked_now(core)
    core.apply(events.Resumed(at_s=1.0))
    (left,) = asked_now(core)
    assert left.device not in {one.device for one in before}, "who was asked is not asked again in the same round"
