"""Who enters, and what an operator orders from the page."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed here")
from playwright.sync_api import expect

from fedtwin.live import agents
from fedtwin.service.access import Access
from fedtwin.service.twins import Broker
from tests.live.plant import events_of, plant
from tests.live.test_steering import EMULATED, SETTINGS
from tests.service.browser.conftest import Open, obstacles
from tests.service.browser.test_live_updates import begun, finish
from tests.service.serving import serving
from tests.service.test_access import OPERATOR, TOKENS, VIEWER


def test_a_token_lets_in_and_its_role_decides(open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "ANSWER_S", 0.3)
    live = begun(tmp_path / "live")
    with serving(tmp_path / "live", access=Access(TOKENS), broker=Broker(("nats://127.0.0.1:1",))) as client:
        page = open_page("", base=str(client.base_url), wait_for="#login-title", noisy=True)
        assert obstacles(page) == []
        page.get_by_role("textbox", name="Token").fill("wrong")
        page.get_by_role("button", name="Enter").click()
        expect(page.get_by_role("alert")).to_have_text("The token is not known.")
        page.get_by_role("textbox", name="Token").fill(VIEWER)
        page.get_by_role("button", name="Enter").click()
        expect(page.locator("#table-title")).to_be_visible()
        views = page.get_by_role("navigation", name="Views")
        expect(views.get_by_role("button", name="Operate")).to_have_count(0)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("textbox", name="Token")).to_be_visible()
        page.request.post(f"{client.base_url}/login", data={"token": OPERATOR})
        page.reload()
        views.get_by_role("button", name="Operate").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        assert obstacles(page) == []
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("main .says.error")).to_contain_text("does not answer")
        page.get_by_role("button", name="End the run").click()
        page.get_by_role("button", name="No", exact=True).click()
        expect(page.get_by_role("button", name="End the run")).to_be_visible()
        finish(live, page)


@pytest.mark.slow
def test_an_order_from_the_page_is_in_the_ledger(open_page: Open, tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        beside = ("--page", "--page-port", 0)
        fleet.new_edge("--rounds", 10**6, "--time-scale", 0.1, *beside, learning__dataset="digits", **SETTINGS)
        url = fleet.url()
        for name in ("d0", "d1"):
            fleet.device(name, url, *EMULATED)
        fleet.wait_for("applied", count=3)
        found = fleet.wait(lambda: re.search(r"The page is at (http://\S+)/", fleet.log("edge")), "the page's address")
        page = open_page("#view=operate", base=found.group(1), noisy=True)
        page.get_by_role("button", name="Pause").click()
        fleet.wait(lambda: events_of(fleet.run, "steered"), "the pause")
        expect(page.locator(".remark", has_text="The run is paused.")).to_be_visible(timeout=30_000)
        page.get_by_role("button", name="Resume").click()
        fleet.wait(lambda: len(events_of(fleet.run, "steered")) == 2, "both orders")
        page.get_by_label("New value").fill("5")
        page.get_by_role("button", name="Set", exact=True).click()
        fleet.wait(lambda: events_of(fleet.run, "set"), "the setting")
        page.get_by_role("combobox", name="Device", exact=True).select_option("d1")
        page.get_by_role("button", name="Drain").click()
        fleet.wait(lambda: len(events_of(fleet.run, "steered")) == 3, "the drain")
        assert [event["command"] for event in events_of(fleet.run, "steered")] == ["pause", "resume", "drain"]
        page.goto("about:blank")
        assert fleet.stopped("edge") == 0
