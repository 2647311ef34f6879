"""Code of the user's own must stay what it was when the run began: nothing may depend on what ran before."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.usercode.digest import clear_caches, code_digest
from fedtwin.usercode.loading import load_object
from fedtwin.usercode.questions import Questions

FIRST_LOOK, FACTOR = 10, 4
ARGUMENTS_ONLY = "they may depend on its arguments only"
WHY = {
    "policy.name": "its decisions depend on what ran before: a score may look at its arguments only",
    "world.channel": f"its gains depend on what ran before: {ARGUMENTS_ONLY}",
    "world.load": f"its frequencies depend on what ran before: {ARGUMENTS_ONLY}",
    "world.availability": f"its answers depend on what ran before: {ARGUMENTS_ONLY}",
    "world.sensing": f"its samples depend on what ran before: {ARGUMENTS_ONLY}",
    "learning.model": "its trainings depend on what the process has trained before: what a network remembers must be a buffer",
    "learning.loss": f"its losses depend on what the process has trained before: {ARGUMENTS_ONLY}",
    "learning.metric": f"its values depend on what the process has judged before: {ARGUMENTS_ONLY}",
    "learning.optimiser": "its steps depend on what the process has trained before: every training begins with a new one",
    "learning.aggregation": "its models depend on what ran before: what a rule remembers must be in its state",
}


class Purity:
    """Looks at digests of the user's code, which see globals, closures and attributes, now and then and at the end.

    ``digests`` are those of the beginning, by setting; ``names`` has ``module:attribute`` of each. ``questions`` are then asked
    again, the second time with empty caches.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        folder: str | Path | None,
        digests: Mapping[str, str],
        questions: Iterable[Questions] = (),
    ) -> None:
        self._names, self._folder = names, folder
        self._digests = {setting: digest for setting, digest in digests.items() if setting in WHY}
        self._next_at, self._questions = FIRST_LOOK, list(questions)

    def look(self, count: int) -> None:
        """After so many rounds."""
        if self._digests and count >= self._next_at:
            self._next_at *= FACTOR
            self.require()

    def require(self) -> None:
        for setting, digest in self._digests.items():
            if code_digest(setting, self._names[setting], self._folder, running=True) != digest:
                raise FedtwinError(
                    f"{setting} = {self._names[setting]!r} changes something of its own while it runs (a global, a closure, an "
                    f"attribute), so {WHY[setting]}."
                )
        if self._questions and self._digests:
            self._ask_again()
            if clear_caches(*(load_object(setting, self._names[setting], self._folder) for setting in self._digests)):
                self._ask_again()

    def _ask_again(self) -> None:
        for questions in self._questions:
            if (where := questions.answered_otherwise()) is not None:
                why = WHY[questions.called.partition(" ")[0]]
                raise FedtwinError(f"{questions.called} answers otherwise when it is asked again {where}, so {why}.")
