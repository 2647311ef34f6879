"""A run that goes on is followed: what its edge server writes down is on the page, and hostile words stay words."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("playwright", reason="Playwright is not installed here")
from playwright.sync_api import Locator, Page, expect

from fedtwin.live.run import events, opening
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import write_records
from fedtwin.live.wire.protocol import Hello
from tests.live.run.test_live_run import CODEC, config_of, deliver, dispatch, weights
from tests.service.browser.conftest import Open
from tests.service.browser.fleets import HOSTILE
from tests.service.serving import serving

NOT_FINITE = "not finite: the upload has NaN or infinite values"
REASON = f"it sent {HOSTILE[0]} and {HOSTILE[1]}"


def begun(folder: Path) -> LiveRun:
    live = opening.begin(folder, config_of(**{"fleet.channels": 1}), "main", CODEC.encode(weights(0.0)))
    for name in (HOSTILE[0], HOSTILE[1], "plain"):
        live.commit(live.core.join(name, Hello(samples=50), live.now_s()))
    live.commit(live.core.start(live.now_s()))
    return live


def state_of(page: Page, device: int) -> Locator:
    return page.locator(f"tr:has(button[data-device='{device}']) td.status")


def finish(live: LiveRun, page: Page) -> None:
    """The run ends, and the page says so; it is left before its server goes."""
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    write_records(live.folder, live.core, live.model)
    live.close()
    expect(page.locator(".run-state .pill")).to_have_text("finished")
    assert not page.evaluate("() => window.hacked")
    page.goto("about:blank")


def test_events_alone_change_the_page(open_page: Open, tmp_path: Path) -> None:
    """What is asked for again once in a while only confirms it."""
    live = begun(tmp_path / "live")
    with serving(tmp_path / "live") as client:
        page = open_page("#view=fleet", base=str(client.base_url))
        page.route("**/fleet?**", lambda _: None)
        sent = dispatch(live)
        expect(state_of(page, sent.device)).to_have_text("in flight")
        expect(page.locator(".map .legend li")).to_have_text(["in flight 1", "idle 2"])
        deliver(live, sent, weights(1.0))
        expect(state_of(page, sent.device)).to_have_text("idle")
        expect(page.locator("[data-figure=version] b")).to_have_text("1")
        queues = page.locator("td.queue").all_inner_texts()
        deliver(live, dispatch(live), weights(1.0))
        expect(page.locator("[data-figure=version] b")).to_have_text("2")
        assert page.locator("td.queue").all_inner_texts() != queues, "the queues of those who wait grow"
        finish(live, page)


def test_what_happens_is_on_the_page(open_page: Open, tmp_path: Path) -> None:
    live = begun(tmp_path / "live")
    with serving(tmp_path / "live") as client:
        page = open_page("#view=fleet", base=str(client.base_url))
        expect(page.locator(".run-state .pill")).to_have_text("running")
        sent = dispatch(live)
        expect(state_of(page, sent.device)).to_have_text("in flight")
        assert deliver(live, sent, weights(1.0)) is None
        expect(state_of(page, sent.device)).to_have_text("idle")
        expect(page.locator("[data-figure=version] b")).to_have_text("1")
        page.get_by_role("slider", name="Moment of the run").press("Home")
        expect(page.locator("[data-figure=version] b")).to_have_text("0")
        sent = dispatch(live)
        other = (sent.device + 1) % 3
        deliver(live, sent, weights(np.nan))
        live.quarantine(live.core.names[other], REASON)
        page.keyboard.press("l")
        expect(state_of(page, sent.device)).to_have_text("quarantined")
        expect(state_of(page, other)).to_have_text("quarantined")
        page.locator(f"button[data-device='{other}']").click()
        expect(page.locator(".drawer .why.failing")).to_contain_text(REASON)
        page.keyboard.press("Escape")
        page.get_by_role("navigation", name="Views").get_by_role("button", name="Refusals").click()
        expect(page.locator("section:has(#quarantine-title) .reason")).to_have_text([NOT_FINITE, REASON])
        expect(page.locator("section:has(#refused-title) tbody tr")).to_have_count(1)
        finish(live, page)


def test_a_page_that_was_there_first_comes_alive_by_itself(open_page: Open, tmp_path: Path) -> None:
    """Before the run has begun, before anybody has joined, while it runs, when its edge server is gone."""
    with serving(tmp_path / "live") as client:
        page = open_page("#view=fleet", base=str(client.base_url), wait_for=".run-state", noisy=True)
        expect(page.locator(".run-state .pill")).to_have_text("waiting")
        expect(page.locator("main")).to_contain_text("The run 'live' has not begun yet.")
        live = opening.begin(tmp_path / "live", config_of(**{"fleet.channels": 1}), "main", CODEC.encode(weights(0.0)))
        expect(page.locator("main")).to_contain_text("No device has joined yet.")
        for name in ("a", "b", "c"):
            live.commit(live.core.join(name, Hello(samples=50), live.now_s()))
        live.commit(live.core.start(live.now_s()))
        deliver(live, dispatch(live), weights(1.0))
        expect(page.locator(".run-state .pill")).to_have_text("running")
        expect(page.locator(".run-state .about")).to_contain_text("3 devices")
        expect(page.locator("[data-figure=version] b")).to_have_text("1")
        deliver(live, dispatch(live), weights(1.0))
        expect(page.locator("[data-figure=version] b")).to_have_text("2")
        expect(page.locator(".says.error")).to_have_count(0)
        live.commit(events.Steered(at_s=live.now_s(), command="pause", by="test"))
        expect(page.locator(".run-state .pill")).to_have_text("paused")
        live.close()
        expect(page.locator(".run-state .pill")).to_have_text("stopped")
        page.goto("about:blank")
