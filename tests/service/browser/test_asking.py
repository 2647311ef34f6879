"""What if, on the page: both futures drawn, with their intervals, and what cannot be asked is a sentence."""

from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed here")
from playwright.sync_api import expect

from tests.service.browser.conftest import Open, plain


@pytest.mark.slow  # the worker starts and compiles
def test_both_futures_are_drawn(open_page: Open) -> None:
    page = open_page("#run=factory&view=whatif&at=round:60")
    page.get_by_label("Energy weight").fill("0.9")
    page.get_by_label("Without").fill("lathe, 3")
    page.get_by_label("Rounds").fill("40")
    page.get_by_label("Worlds").fill("20")
    with page.expect_response("**/api/whatif") as response:
        page.get_by_role("button", name="Ask the twin").click()
    answer = response.value.json()
    asked: Any = response.value.request.post_data_json
    assert asked["set"] == {"objective.energy_weight": 0.9} and asked["without"] == [1, 3] and asked["at"] == 60
    row = page.locator("[data-measure=mean_cost]")
    expect(row).to_be_visible()
    as_is, what_if = (plain(text) for text in row.locator("td b").all_inner_texts()[:2])
    assert as_is == pytest.approx(answer["as_is"]["mean_cost"]["mean"], rel=0.001)
    assert what_if == pytest.approx(answer["what_if"]["mean_cost"]["mean"], rel=0.001)
    expect(page.locator("[data-future] canvas")).to_have_count(2)
    expect(page.locator(".notes li")).to_have_text(answer["notes"])


def test_a_question_that_cannot_be_asked_is_a_sentence(open_page: Open) -> None:
    page = open_page("#run=factory&view=whatif", noisy=True)
    page.get_by_label("Rounds").fill("1000000")
    page.get_by_label("Worlds").fill("1000")
    page.get_by_role("button", name="Ask the twin").click()
    expect(page.locator(".answer .says.error")).to_contain_text("rounds = 1000000")
    expect(page.get_by_label("Rounds")).to_have_value("1000000")  # what is typed stays, however often the page is drawn anew
    expect(page.get_by_label("Worlds")).to_have_value("1000")
