"""``at=``: which moment of a run is asked for, and the twin there."""

from typing import NamedTuple

from fedtwin.errors import FedtwinError
from fedtwin.runs import Moment
from fedtwin.service.served import Served
from fedtwin.service.telling import UnansweredError
from fedtwin.twin import Twin, queue_at, total_queue

AT = r"^(latest|revision:[0-9]{1,18}|round:[0-9]{1,18}|seconds:[0-9]{1,18}([.][0-9]{1,18})?(e[+-]?[0-9]{1,2})?)$"


class Seen(NamedTuple):
    """A twin, when it was so, and whether that is now, in a run that goes on."""

    moment: Moment
    twin: Twin
    live: bool
    names: list[str]
    drained: frozenset[str]
    now_s: float
    """By the run's clock: of a live run that goes on, later than its last event."""

    def queue(self, device: int) -> float:
        """Q_n(t) then."""
        known = self.twin.devices[device]
        return queue_at(
            known.queue, known.queue_round, max(known.queue_round, self.moment.queue_round), self.twin.min_mean_samples
        )

    def status(self, device: int) -> str:
        known = self.twin.devices[device].status
        return "drained" if self.names[device] in self.drained and known != "in-flight" else known

    def total_queue(self) -> float:
        return total_queue(self.twin, self.moment.queue_round)


def _reach(last: Moment) -> str:
    return f"it has come to revision {last.revision}, round {last.round} and second {last.seconds:.6g}"


def seen(served: Served, at: str = "latest") -> Seen | None:
    """The twin at a moment; None of a live run that has not started."""
    kind, _, number = at.partition(":")
    named = {} if kind == "latest" else {kind: float(number) if kind == "seconds" else int(number)}
    with served.reading() as run:
        if (last := served.latest()) is None:
            if named:
                raise UnansweredError(404, f"at = {at!r} is not in the run {served.id!r}: it has not started.")
            return None
        try:
            moment, twin = run.moment(**named), run.twin(**named)  # type: ignore[arg-type]
        except FedtwinError as error:
            raise UnansweredError(404, f"at = {at!r} is not in the run {served.id!r}: {_reach(last)}.") from error
        live = not run.finished and moment.revision == last.revision
        names = served.names()[: len(twin.devices)]
        now_s = moment.seconds + (served.silent_s(run) if live else 0.0)
        return Seen(moment, twin, live, names, run.drained(revision=moment.revision), now_s)
