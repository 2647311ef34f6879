"""Which rounds count towards ``run.rounds``: those that led to something, or may still.

A round does not count whose task was given up, or in which nobody asked gave an answer; it counts after all once the upload is
mixed in late. A round that somebody declined and nobody took counts, and so does a selection that was only too late for its
synchronous round: they do in a simulation. ``t`` itself never goes back.
"""

from dataclasses import dataclass, field


@dataclass
class Progress:
    """A state that changes by events only. ``barren`` counts what came to nothing in a row: enough of it ends a run.

    ``declined``: rounds that nobody has taken yet, and somebody has declined.
    """

    given_up: int = 0
    barren: int = 0
    declined: list[int] = field(default_factory=list)

    def answered(self, round_: int) -> None:
        """Somebody declined the round."""
        if round_ not in self.declined:
            self.declined.append(round_)

    def taken(self, round_: int) -> None:
        """Its task says what becomes of it."""
        if round_ in self.declined:
            self.declined.remove(round_)

    def passed(self, round_: int) -> None:
        """Nobody took the round."""
        if round_ > 0 and round_ not in self.declined:
            self.came_to_nothing()
        self.taken(round_)

    def came_to_nothing(self) -> None:
        """A round, whose one task was given up."""
        self.given_up += 1
        self.barren += 1

    def mixed_in(self, *, of_a_round_given_up: bool) -> None:
        self.given_up -= of_a_round_given_up
        self.barren = 0
