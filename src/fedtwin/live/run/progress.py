"""Which rounds count towards ``run.rounds``: those that led to something, or may still.

A round does not count whose task was given up, or in which nobody asked gave an answer; it counts after all once the upload is
mixed in late. A round that somebody declined and nobody took counts, and so does a selection that was only too late for its
synchronous round: they do in a simulation. ``t`` itself never goes back.
"""

from dataclasses import dataclass


@dataclass
class Progress:
    """A state that changes by events only. ``barren`` counts what came to nothing in a row: enough of it ends a run."""

    given_up: int = 0
    barren: int = 0
    _round: int = 0
    _answered: bool = False

    def asked(self, round_: int) -> None:
        if round_ != self._round:
            self._round, self._answered = round_, False

    def answered(self) -> None:
        self._answered = True

    def passed(self, round_: int) -> None:
        """Nobody took the round."""
        if round_ > 0 and not (self._answered and round_ == self._round):
            self.came_to_nothing()

    def came_to_nothing(self) -> None:
        """A round, whose one task was given up."""
        self.given_up += 1
        self.barren += 1

    def mixed_in(self, *, of_a_round_given_up: bool) -> None:
        self.given_up -= of_a_round_given_up
        self.barren = 0
