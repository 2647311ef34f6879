"""Logs: one line per happening, as text or as JSON."""

import json
import logging
import re
from collections.abc import Iterator

import pytest

from fedtwin.live.logs import LOG, say, set_up


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Other tests find the logger as it was."""
    handlers, propagate, level = LOG.handlers[:], LOG.propagate, LOG.level
    yield
    LOG.handlers[:], LOG.propagate = handlers, propagate
    LOG.setLevel(level)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "json")
    say(logging.INFO, "joined", device="press-1", samples=5, cost=0.123456789, late=False, loss=None)
    say(logging.DEBUG, "not heard")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    entry = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("at"))
    assert entry == {
        "level": "info", "message": "joined", "device": "press-1", "samples": 5,
        "cost": 0.123456789, "late": False, "loss": None,
    }  # fmt: skip


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("debug", "text")
    say(logging.DEBUG, "applied", device="press-1", cost=0.123456789)
    say(logging.WARNING, "silent")
    first, second = capsys.readouterr().err.splitlines()
    assert first.split(" ", 1)[1] == "debug   applied  device=press-1 cost=0.1235"
    assert second.split(" ", 1)[1] == "warning silent"


def test_a_field_may_have_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "text")
    fields = {"level": "high", "message": "late"}
    say(logging.INFO, "told", **fields)
    assert capsys.readouterr().err.endswith("told  level=high message=late\n")


def test_what_a_device_says_stays_on_its_line_and_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "text")
    reason = "busy\n2026-01-01T00:00:00.000Z info    applied  device=press-2\r\x1b[2K\u202e\u2028é"
    say(logging.WARNING, f"given up: {reason}", reason=reason, hardware={"cpu": reason})
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.removesuffix("\n").isprintable()
    assert r"reason=busy\n2026" in said and r"\r\x1b[2K\u202e\u2028é" in said


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_brings_its_traceback(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", form)
    try:
        raise ValueError("what is\nthis")
    except ValueError:
        LOG.exception("a task came to nothing")
    said = capsys.readouterr().err
    if form == "json":
        assert said.count("\n") == 1, "one object per line, whatever is in it"
        said = json.loads(said)["error"]
    assert "Traceback" in said and "ValueError: what is\nthis" in said


def test_setting_up_again_does_not_double_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("info", "text")
    set_up("error", "json")
    say(logging.WARNING, "not heard")
    say(logging.ERROR, "heard")
    assert json.loads(capsys.readouterr().err)["message"] == "heard"
