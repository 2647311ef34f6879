"""A second edge server of a run: it waits while the first one serves, and takes over when that ends, however it ends."""

import logging
from collections.abc import Sequence
from pathlib import Path

from fedtwin.errors import LockedError
from fedtwin.live.event_loop import StopSignals
from fedtwin.live.logs import say
from fedtwin.live.run.past import has_ledger
from fedtwin.live.server.handover import caught_up
from fedtwin.live.server.hosting import Served, checked, name_at_the_broker, reopened, serve_run
from fedtwin.live.server.place import Place
from fedtwin.live.views.device_series import MOST_DEVICES
from fedtwin.records.files import LOCK_NAME, SUMMARY_NAME
from fedtwin.records.lock import Lock

LOOK_S = 0.1


def stand_by(
    folder: Path,
    *,
    run: str | None = None,
    place: Place | None = None,
    evaluator: bool = True,
    metrics: str | None = None,
    metrics_devices: int = MOST_DEVICES,
    grace_s: float = 10.0,
    logs: Sequence[str] = (),
    ship_code: bool = False,
) -> Served | None:
    """Waits while another process serves the run in ``folder``, or until there is a run, and then goes on with it.

    The rest is as for ``resume``. None where it was stopped before, or the run was finished by the other one: then nothing
    has been changed.
    """
    place = checked(place, metrics, new=False)
    with StopSignals() as signals:
        lock = _lock_when_free(folder, signals, anywhere=bool(place.servers))
        if lock is None:
            return None
        try:
            name = name_at_the_broker(folder, place) if has_ledger(folder) else run or "main"
        except BaseException:
            lock.release()
            raise
        if name is not None and not caught_up(folder, name, place, lock, signals, standby=True):
            return None
        live = reopened(folder, run, lock)
        return serve_run(
            live,
            place,
            evaluator=evaluator,
            metrics=metrics,
            metrics_devices=metrics_devices,
            grace_s=grace_s,
            logs=logs,
            signals=signals,
            standby=True,
            ship_code=ship_code,
        )


def _lock_when_free(folder: Path, signals: StopSignals, *, anywhere: bool) -> Lock | None:
    """The system frees it when its holder ends, also by kill -9. ``anywhere``: a run that is not here may be at the broker."""
    told: str | None = None
    while not signals.asked:
        why = f"there is no run in {str(folder)!r} yet"
        if has_ledger(folder) or anywhere:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock = Lock(folder / LOCK_NAME)
            except LockedError:
                why = "another edge server serves the run"
            else:
                if (folder / SUMMARY_NAME).exists():
                    lock.release()
                    say(logging.INFO, "the run is finished: there is nothing to take over", folder=folder)
                    return None
                if told is not None:
                    say(logging.INFO, "taking over: the other edge server has ended", folder=folder)
                return lock
        if why != told:
            say(logging.INFO, f"standing by: {why}", folder=folder)
            told = why
        signals.look_again_in(LOOK_S)
    return None
