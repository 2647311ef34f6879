"""A device that hoards tokens, or is asked more often than anybody because it is always free, does not take the model over."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedtwin import open_run
from fedtwin.live.run import events, opening
from fedtwin.live.run.influence import Influence
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.wire.protocol import Decline, Hello
from tests.live.run.test_core import HONEST, UNLIKE, Script, config_of
from tests.live.run.test_live_run import CODEC, deliver, dispatch, next_question, take, weights
from tests.live.run.test_live_run import config_of as live_config_of
from tests.live.run.test_progress import replayed, starts_anew


def fleet_of(folder: Path, devices: int, **more: object) -> LiveRun:
    config = live_config_of(**{"fleet.devices": devices, "fleet.channels": devices, "run.rounds": 10_000, **more})
    live = opening.begin(folder, config, "main", CODEC.encode(weights(0.0)))
    for number in range(devices):
        live.commit(live.core.join(f"d{number}", Hello(samples=50), live.now_s()))
    live.commit(live.core.start(live.now_s()))
    return live


@pytest.mark.parametrize("rule", ["fedasync", "fedbuff"])
def test_a_device_that_hoards_tokens_redeems_one_of_them(tmp_path: Path, rule: str) -> None:
    live = fleet_of(tmp_path / "run", 4, **{"learning.aggregation": rule})
    tokens: list[events.Dispatched] = []
    while len(tokens) < 10:
        sent = dispatch(live)
        if live.core.names[sent.device] != "d3":
            assert deliver(live, sent, weights(0.0)) is None
            continue
        tokens.append(sent)
        starts_anew(live, sent)
        live.commit(events.StatusChanged(at_s=live.now_s(), device=sent.device, status="idle"))
    honest = live.core.applied
    verdicts = [deliver(live, sent, weights(1.0)) for sent in tokens]
    assert verdicts.count(None) == 1 and verdicts[-1] is None and live.core.applied == honest + 1
    assert set(verdicts[:-1]) == {"late: a newer task of the device was given up since"}
    assert float(np.mean(live.model.weights.floats)) <= 0.5, "one upload, mixed in by half"
    assert len(live.core.given_up) == 0
    live.close()


def test_a_device_that_is_always_free_has_three_times_its_fair_share(tmp_path: Path) -> None:
    """All others are at work whenever it is asked: there is no choice. Ten devices, so 30 of 100 uploads."""
    live = fleet_of(tmp_path / "run", 10)
    slow = []
    while len(live.core.open) < 10:
        sent = dispatch(live)
        slow.append(sent)
    fast = slow.pop()
    uploads: Counter[str] = Counter()
    means = []
    for turn in range(600):
        refused = deliver(live, fast, weights(1.0))
        uploads["clipped" if refused else "fast"] += 1
        assert refused is None or refused == "share: 30 of 100 uploads are 3 times its fair share among 10 devices"
        if refused:
            live.commit(events.StatusChanged(at_s=live.now_s(), device=fast.device, status="idle"))
        fast = dispatch(live)
        if turn % 10 == 0:
            assert deliver(live, slow.pop(0), weights(0.0)) is None
            uploads["slow"] += 1
            slow.append(dispatch(live))
            assert slow[-1].device != fast.device
        means.append(float(np.mean(live.model.weights.floats)))
    assert uploads == {"slow": 60, "fast": 30, "clipped": 570}
    assert max(means[-300:]) < 1e-3, "what it had moved has been mixed away"
    summary = open_run(tmp_path / "run").summary
    assert summary["uploads_clipped"] == 570 and summary["clipped"] == {live.core.names[fast.device]: 570}
    again = replayed(live)
    assert (again.influence.window, again.influence.unchosen) == (live.core.influence.window, live.core.influence.unchosen)
    live.close()


def test_the_bound_is_a_setting(tmp_path: Path) -> None:
    """A fast device that is honest, and is meant to have what it delivers."""
    live = fleet_of(tmp_path / "run", 10, **{"live.influence_shares": 100})
    while len(live.core.open) < 10:
        fast = dispatch(live)
    for _ in range(120):
        assert deliver(live, fast, weights(1.0)) is None
        fast = dispatch(live)
    assert open_run(tmp_path / "run").summary["clipped"] == {}
    live.close()


def test_an_accomplice_that_is_free_and_declines_lifts_no_bound(tmp_path: Path) -> None:
    """It was asked in the same round before: there was no choice."""
    live = fleet_of(tmp_path / "run", 10)
    while len(live.core.open) < 8:
        dispatch(live)
    busy = {task.sent.device for task in live.core.open.values()}
    accomplice = next(device for device in range(10) if device not in busy)
    verdicts: Counter[bool] = Counter()
    while verdicts.total() < 150:
        asked = next_question(live)
        if asked is None or isinstance(asked, events.Passed):
            live.commit(asked or live.core.offer_again(live.now_s()))
        elif isinstance(asked, events.Asked) and asked.device == accomplice:
            live.commit(asked)
            live.commit(live.core.answered(asked, Decline(reason="busy"), "", live.now_s()))
        elif isinstance(asked, events.Asked):
            sent = take(live, asked)
            refused = deliver(live, sent, weights(1.0))
            verdicts[refused is None] += 1
            if refused is not None:
                assert refused.startswith("share: ")
                live.commit(events.StatusChanged(at_s=live.now_s(), device=sent.device, status="idle"))
    assert verdicts[False] >= 100
    live.close()


def test_alone_or_with_two_others_nothing_is_clipped(tmp_path: Path) -> None:
    live = fleet_of(tmp_path / "run", 3)
    while len(live.core.open) < 3:
        sent = dispatch(live)
    for _ in range(150):
        assert deliver(live, sent, weights(1.0)) is None
        sent = dispatch(live)
    live.close()


def test_who_has_left_does_not_count() -> None:
    """The others may have fallen silent: then whoever is left goes on."""
    influence = Influence()
    for _ in range(30):
        influence.mixed_in(0, chosen=False, devices=10)
    assert influence.excess(0, taking_part=10, devices=10, shares=3.0) is not None
    assert influence.excess(0, taking_part=9, devices=10, shares=3.0) is None
    for _ in range(100):
        influence.mixed_in(0, chosen=False, devices=10)
    assert len(influence.window) == 100 and influence.excess(0, taking_part=3, devices=10, shares=3.0) is None
    for device in range(1, 8):
        for _ in range(10):
            influence.mixed_in(device, chosen=True, devices=10)
    assert influence.unchosen[0] == 30 and influence.excess(0, taking_part=10, devices=10, shares=3.0) is None, (
        "its oldest goes"
    )
    influence.mixed_in(0, chosen=True, devices=10)
    assert influence.excess(0, taking_part=10, devices=10, shares=3.0) is None


class Watched(Script):
    """Every upload would be let in."""

    def happen(self, event: events.Event) -> None:
        if isinstance(event, events.Applied):
            assert self.core.excess_of(self.core.open[event.token], late=False) is None
        super().happen(event)


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@pytest.mark.parametrize("policy", HONEST)
@pytest.mark.parametrize("channels", [3, 12])
def test_an_honest_run_has_no_clips(policy: str, channels: int) -> None:
    Watched(config_of(policy, 12, channels, 200, 3, **UNLIKE)).play()


def test_what_the_edge_server_chooses_is_not_clipped() -> None:
    script = Watched(config_of("cu-ucb", 12, 2, 200, 3, **{"policy.v": 1e9, "policy.bonus_scale": 0.0}))
    script.play()
    ((device, most),) = script.core.influence.uploads.most_common(1)
    assert most > 3 * 120 / 12 and script.core.influence.unchosen[device] == 0
