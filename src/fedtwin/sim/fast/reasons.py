"""Why Numba does not compile something, in one line of its long explanation."""

import re

ESCAPE_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
EXPLAIN_NOTHING = ("Failed in", "During:", "File ", "<source", "def ", ">>>", "There are")


def reason_in(explanation: str) -> str:
    """The first line that explains something, in plain letters: Numba colours its words wherever ``colorama`` is installed."""
    lines = [line.strip() for line in ESCAPE_CODES.sub("", explanation).splitlines()]
    return next((line.rstrip(".:") for line in lines if line and not line.startswith(EXPLAIN_NOTHING)), "of unknown reason")
