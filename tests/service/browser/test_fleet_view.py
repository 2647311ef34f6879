"""The page shows the numbers of the records, at every moment, and the device that is asked for."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed here")
from playwright.sync_api import Page, expect

from fedtwin import open_run
from fedtwin.twin import Twin, total_queue
from tests.service.browser.conftest import Open, figure, plain
from tests.service.browser.fleets import NAMES, PLAYED_ROUNDS

PLACE_ON_MAP = """async device => {
    const { layoutOf, projection } = await import("/static/app/map_layout.js");
    const { places } = await import("/static/app/state.js");
    const layout = layoutOf(places.value, places.value.x_m.length);
    const { clientWidth, clientHeight } = document.querySelector(".map-canvas");
    const place = projection(layout, clientWidth, clientHeight, { by: 1, x: 0, y: 0 });
    return { x: place.x(layout.x[device]), y: place.y(layout.y[device]) };
}"""


def row_of(page: Page, device: int) -> list[str]:
    """The cells of a device in the table, after its name."""
    return page.locator(f"tr:has(button[data-device='{device}']) td").all_inner_texts()


def assert_shows(page: Page, twin: Twin, round_: int) -> None:
    """Every device's state, queue, cost and counts."""
    for number, device in enumerate(twin.devices):
        status, queue, mean_cost, selections, declines, samples = row_of(page, number)[:6]
        assert status.strip() == device.status.replace("-", " ")
        expected = device.queue + (max(round_, device.queue_round) - device.queue_round) * twin.min_mean_samples
        assert plain(queue) == pytest.approx(expected, rel=0.005)
        assert (int(selections), int(declines), int(samples)) == (device.selections, device.declines, device.samples.value)
        if device.observations:
            assert plain(mean_cost) == pytest.approx(device.mean_cost, rel=0.005)
        else:
            assert mean_cost == "–", "a cost that was never seen is no number"


def test_the_numbers_are_those_of_the_records(open_page: Open, folders: Path) -> None:
    run, page = open_run(folders / "factory"), open_page("#run=factory")
    expect(page.locator(".pill").first).to_have_text("finished")
    assert figure(page, "round") == str(PLAYED_ROUNDS)
    assert plain(figure(page, "cost")) == pytest.approx(run.summary["mean_cost"], rel=0.005)
    assert plain(figure(page, "energy")) == pytest.approx(run.summary["mean_energy_j"], rel=0.005)
    assert_shows(page, run.twin(), PLAYED_ROUNDS + 1)


def test_the_slider_goes_to_any_moment_and_back(open_page: Open, folders: Path) -> None:
    run, page = open_run(folders / "factory"), open_page("#run=factory&at=round:60")
    expect(page.locator("[data-figure=round] b")).to_have_text("60")
    twin = run.twin(round=60)
    assert plain(figure(page, "queue")) == pytest.approx(total_queue(twin, 60), rel=0.005)
    joules = sum(one.energy_sum_j for one in twin.devices) / sum(one.observations for one in twin.devices)
    assert plain(figure(page, "energy")) == pytest.approx(joules, rel=0.005), "of the same moment as the rest"
    assert_shows(page, twin, 60)
    slider = page.get_by_role("slider", name="Moment of the run")
    slider.press("ArrowRight")
    expect(page.locator("[data-figure=round] b")).to_have_text("61")
    expect(page).to_have_url(re.compile("at=round:61$"))
    slider.press("Home")
    expect(page.locator("[data-figure=round] b")).to_have_text("0")
    slider.press("End")
    expect(page.locator("[data-figure=round] b")).to_have_text(str(PLAYED_ROUNDS))
    slider.evaluate("node => { node.value = 500; node.dispatchEvent(new Event('input', { bubbles: true })); }")
    expect(page.get_by_role("button", name="End", exact=True)).to_have_attribute("aria-pressed", "false")
    expect(page.locator("[data-figure=round] b")).not_to_have_text(str(PLAYED_ROUNDS))
    half_s = run.summary["virtual_time_s"] / 2
    half = run.twin(seconds=half_s)
    assert [row_of(page, number)[3] for number in range(3)] == [str(device.selections) for device in half.devices[:3]]
    decided = run.moment(seconds=half_s).round
    for round_ in (decided, decided - 1):  # first as it was before its decision, which a second is after
        slider.press("ArrowLeft")
        expect(page).to_have_url(re.compile(f"at=round:{round_}$"))


def test_playing_reaches_the_end_by_itself(open_page: Open) -> None:
    page = open_page("#run=factory")
    page.get_by_label("Speed").select_option("10")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Stop playing")).to_be_visible()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(page.locator("[data-figure=round] b")).to_have_text(str(PLAYED_ROUNDS))


def test_the_table_sorts_and_filters(open_page: Open, folders: Path) -> None:
    page = open_page("#run=factory")
    names = page.locator("tbody th.name button")
    page.get_by_role("button", name="Chosen").click()
    expect(page.locator("th.selections")).to_have_attribute("aria-sort", "ascending")
    counts = [device.selections for device in open_run(folders / "factory").twin().devices]
    assert page.locator("td.selections").all_inner_texts() == [str(count) for count in sorted(counts)]
    page.get_by_role("button", name="Chosen").click()
    assert page.locator("td.selections").all_inner_texts() == [str(count) for count in sorted(counts, reverse=True)]
    page.get_by_label("Filter by name").fill("LAT")
    expect(names).to_have_text(["lathe"])
    page.get_by_label("Filter by name").fill("nobody has this name")
    expect(page.locator(".table-box .says")).to_have_text("No device fits this filter.")


def test_the_drawer_says_why_and_what_is_known(open_page: Open, folders: Path) -> None:
    run, page = open_run(folders / "factory"), open_page("#run=factory&at=round:60")
    chosen = next(row for row in run.rounds.to_pylist() if row["round"] == 60 and not row["declined"])
    page.locator(f"button[data-device='{chosen['device']}']").click()
    drawer = page.get_by_role("complementary")
    expect(drawer.locator("h2")).to_have_text(NAMES[chosen["device"]])
    expect(drawer.locator("#why-title")).to_contain_text("it was chosen")
    parts = drawer.locator(".scores tbody tr")
    expect(parts.locator("th")).to_have_text(["V·cost", "bonus", "queue", "score"])
    assert plain(drawer.locator(".scores .sum td").first.inner_text()) == pytest.approx(chosen["index"], rel=0.005)
    facts = drawer.locator(".facts tr", has_text="measured")
    expect(facts.first).to_be_visible()
    expect(drawer.locator(".chart canvas").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)


def test_the_map_opens_a_device_by_mouse_and_by_keyboard(open_page: Open) -> None:
    page = open_page("#run=factory")
    canvas = page.locator(".map-canvas")
    page.mouse.move(700, 5)
    canvas.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip strong")).to_have_text(NAMES[0])
    page.keyboard.press("Enter")
    expect(page.locator("#drawer-title")).to_have_text(NAMES[0])
    assert "10 devices" in (canvas.get_attribute("aria-label") or "")
    page.get_by_role("button", name="Close the device").click()
    canvas.click(position=page.evaluate(PLACE_ON_MAP, 2))
    expect(page.locator("#drawer-title")).to_have_text(NAMES[2])


def test_curves_of_runs_lie_over_one_another(open_page: Open) -> None:
    page = open_page("#run=trained&view=runs", wait_for=".grid")
    expect(page.locator("[data-curve=metric] figcaption")).to_contain_text("Accuracy")
    page.get_by_label("Lay factory over").check()
    expect(page.locator("ul[aria-label=Runs] li")).to_have_text(["trained", "factory"])
    expect(page.locator("#differ-title")).to_be_visible()
    expect(page.locator("tr", has_text="fleet.channels").locator("td")).to_have_text(["2", "3"])
