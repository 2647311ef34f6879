"""One live run on disk: core, ledger and model together, without a network.

An upload is mixed in exactly once or never. The order is: the new model is written, then its event, and only then is the upload
acknowledged. Whatever is killed in between, the ledger says what has happened; an upload that comes again is told by its token.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from fedtwin.config import config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Upload
from fedtwin.live.logs import say
from fedtwin.live.run import admission, events
from fedtwin.live.run.admission import Admitted, NotAdmitted
from fedtwin.live.run.clock import RunClock
from fedtwin.live.run.core import Core, OpenTask
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME, Ledger, cut_torn_line, read_events
from fedtwin.live.run.model import LiveModel
from fedtwin.live.run.stream_ledger import StreamLedger
from fedtwin.live.run.trail import Trail
from fedtwin.live.wire.protocol import PROTOCOL_VERSION, Done, Failed
from fedtwin.records.files import CONFIG_NAME, LOCK_NAME, SUMMARY_NAME
from fedtwin.records.lock import Lock

MODELS = "models"
Listener = Callable[[Event, "LiveRun"], None]


class LiveRun:
    """The run in a folder. ``commit`` is the only way anything happens."""

    def __init__(self, folder: Path, *, resumed: bool, lock: Lock | None = None) -> None:
        self.folder = folder
        self.listeners: list[Listener] = []
        self._stream: StreamLedger | None = None
        self._lock = lock or Lock(folder / LOCK_NAME)
        try:
            self.config = load_config(folder / CONFIG_NAME)
            self.core = Core(self.config)
            fsync = self.core.live.fsync
            path = folder / LEDGER_NAME
            cut_torn_line(path)
            self._before, trail = Trail(), Trail()
            for event in read_events(path):
                self.core.apply(event)
                if isinstance(event, events.Applied | events.Closed):
                    self._before, trail = trail, trail.after(event)
            _check_it_is_the_same(self.core, folder)
            began = self.core.began
            self._clock = RunClock(self.core.live.time_scale, self.core.last_at_s, began.wall_s if began is not None else None)
            self._ledger = Ledger(path, fsync=fsync)
            self.model = LiveModel(folder / MODELS, self.config, version=self.core.version, trail=trail, fsync=fsync)
            self._remove_what_is_not_needed()
            if resumed and not self.core.finished:
                self.commit(events.Resumed(at_s=self.now_s()))
        except BaseException:
            self._lock.release()
            raise

    @property
    def name(self) -> str:
        assert self.core.began is not None
        return self.core.began.run

    def now_s(self) -> float:
        """The run's clock."""
        return self._clock.now_s()

    def arrival_s(self, broker_wall_s: float) -> float:
        """When the broker took a message, on the run's clock."""
        return self._clock.at_s(broker_wall_s)

    def commit(self, event: Event) -> None:
        """It is in the ledger, and so it has happened; where that is at the broker, outside only when it is ``settled``."""
        (self._stream or self._ledger).append(event)
        self._happened(event)

    def write_to(self, stream: StreamLedger) -> None:
        """From now on the ledger is at the broker, and the folder has a copy."""
        stream.copy_to(self._ledger)
        self._stream = stream

    async def settled(self) -> None:
        """Whatever was committed is in the ledger, wherever that is."""
        if self._stream is not None:
            await self._stream.settled()

    def _happened(self, event: Event) -> None:
        self.core.apply(event)
        for listener in self.listeners:
            listener(event, self)

    def close(self) -> None:
        self._ledger.close()
        self._lock.release()

    # What devices are told off for

    def refuse(self, name: str, what: str, reason: str, token: str | None = None) -> None:
        """Counted always, written down the 1st, 2nd, 4th, 8th, … time: a device that floods does not fill the disk."""
        event = self.core.refuse(name, what, reason, self.now_s(), token)
        if event.count & (event.count - 1) == 0:
            self.commit(event)
            say(logging.WARNING, "refused", device=name, what=what, reason=reason, count=event.count)
        else:
            self._happened(event)

    def quarantine(self, name: str, reason: str) -> None:
        """The device is left out; a task it has is over."""
        if name not in self.core.members or self.core.is_quarantined(name):
            return
        task = self._task_of(name)
        if task is not None:
            self.commit(self.core.give_up(task, self.now_s(), f"quarantined: {reason}", "quarantined"))
        self.commit(self.core.quarantine(name, reason, self.now_s()))
        say(logging.WARNING, "quarantined", device=name, reason=reason)

    def _task_of(self, name: str) -> OpenTask | None:
        device = self.core.number_of(name)
        return self.core.task_of(device) if device is not None else None

    # What comes of an upload

    def receive(self, name: str, done: Done, body: bytes | memoryview | None, arrived_s: float) -> str | None:
        """An upload has come whole. It is mixed in and on disk when this returns None; or the reason it was refused for."""
        verdict = admission.admit(self.core, self.model, name, done, body, arrived_s=arrived_s, now_s=self.now_s())
        if isinstance(verdict, NotAdmitted):
            return self._turn_away(name, "result", verdict, done.token)
        self._mix(verdict, done)
        return None

    def expects(self, name: str, token: str, size: int) -> NotAdmitted | None:
        """None where bytes of so many are those of an upload that a task waits for."""
        return admission.admit_bytes(self.core, self.model, name, token, size)

    def receive_bytes(self, name: str, token: str, size: int) -> bool:
        """Bytes have come before their result: whether they are to be kept for it."""
        verdict = self.expects(name, token, size)
        if verdict is not None and not verdict.reason.startswith("duplicate"):  # its result says so
            self._turn_away(name, "upload", verdict)
        return verdict is None

    def receive_failure(self, name: str, failed: Failed) -> None:
        """Not asked before it is heard again: a device that fails at once would use up all rounds in seconds."""
        verdict = admission.admit_failure(self.core, name, failed.token)
        if isinstance(verdict, NotAdmitted):
            self._turn_away(name, "result", verdict, failed.token)
        else:
            self.commit(self.core.give_up(verdict, self.now_s(), f"failed: {failed.reason}", "offline"))

    def receive_unreadable(self, name: str, data: bytes, reason: str) -> None:
        """A result that cannot be read is held against a device only if it carries the secret token of its task.

        The broker's own words can be directed onto the subject of a device by another one.
        """
        self.refuse(name, "result", reason)
        task = self._task_of(name)
        if task is not None and task.sent.token.encode() in data:
            self.quarantine(name, reason)

    def _turn_away(self, name: str, what: str, verdict: NotAdmitted, token: str | None = None) -> str:
        """Recorded; what no honest device sends is answered by quarantine, and a task that ends so is given up."""
        self.refuse(name, what, verdict.reason, token)
        if verdict.attack:
            self.quarantine(name, verdict.reason)
        elif verdict.task is not None and verdict.task.sent.token in self.core.open:
            if verdict.dropped:
                self.commit(self.core.drop(verdict.task, self.now_s()))
            else:
                self.commit(self.core.give_up(verdict.task, self.now_s(), f"refused: {verdict.reason}", "idle"))
        return verdict.reason

    def _mix(self, upload: Admitted, done: Done) -> None:
        """The new model first, then its event; who calls acknowledges last. Those of a synchronous round wait for its end."""
        core, sent, believed, model = self.core, upload.task.sent, upload.believed, self.model
        staleness, old_version = core.version - sent.version, core.version
        told = Upload(
            upload.start.floats if model.needs_start else None,
            upload.weights.floats,
            core.changes - upload.task.changes,
            float(done.samples),
            sent.device,
            sent.round,
        )
        version, changed = old_version, False
        kept: events.KeptUpload | events.KeptState | None
        if core.sync:
            kept = model.keep(core.applied + 1, told, upload.weights, start=sent.version)
        else:
            mixed = model.mixed(told, upload.weights.counters)
            version, changed = old_version + 1, mixed.changed
            kept = model.save(version, mixed, told, upload.weights, start=sent.version)
        sources = {key: getattr(done, key).source for key in ("compute_s", "upload_s", "compute_j", "upload_j")}
        event = events.Applied(
            at_s=self.now_s(),
            token=sent.token,
            device=sent.device,
            version=version,
            changed=changed,
            staleness=staleness,
            late=upload.late,
            **believed.charged,
            train_loss=done.train_loss,
            elapsed_s=upload.elapsed_s,
            reported_s=believed.reported_s,
            believed=believed.agrees,
            sources={**sources, "cpu_hz": done.cpu_source},
            link_s=done.link_s.value,
            uploaded_bytes=done.model_bytes,
            upload=kept if isinstance(kept, events.KeptUpload) else None,
            state=kept if isinstance(kept, events.KeptState) else None,
        )
        self._commit_to_the_model(event)
        if model.needs_start or self._files or model.trail.files:
            self._remove_what_is_not_needed()
        else:
            model.forget(old_version - 1)

    def close_round(self) -> bool:
        """A synchronous round that is over is closed: the new model first, then its event. False where there is none."""
        core, model, at_s = self.core, self.model, self.now_s()
        if not core.round_is_over(at_s) or core.current is None:
            return False
        uploads = core.current.uploads
        mixed = model.round_mixed(uploads)
        version = core.version + bool(uploads)
        kept = model.save_round(core.round, version, mixed)
        self._commit_to_the_model(core.close_round(at_s, version, changed=mixed.changed, state=kept))
        self._remove_what_is_not_needed()
        return True

    def _commit_to_the_model(self, event: events.Applied | events.Closed) -> None:
        """Its files are on disk, and the trail that leads to them grows with the event."""
        self.commit(event)
        self._before, self.model.trail = self.model.trail, self.model.trail.after(event)

    def _remove_what_is_not_needed(self) -> None:
        """What gave the state back before the last upload stays, in case the ledger's last line is lost with the power."""
        trails, starts = (self._before, self.model.trail), self.model.needs_start
        versions = self._versions_needed().union(*(trail.versions(starts=starts) for trail in trails))
        self._files = trails[0].files | trails[1].files
        self.model.keep_only(versions, self._files)

    def _versions_needed(self) -> set[int]:
        """The newest, the one before in case the last line of the ledger is lost with the power, and those of tasks whose
        upload would be taken.
        """
        live, version = self.core.live, self.core.version
        tasks = [*self.core.open.values()] if self.model.needs_start else []
        if self.model.needs_start and live.late == "mix":
            tasks += self.core.given_up.values()
        starts = {task.sent.version for task in tasks}
        return {version, version - 1, *(start for start in starts if version - start <= live.max_staleness)}


def _check_it_is_the_same(core: Core, path: Path) -> None:
    """Settings, protocol and code are those the run was begun with, and it is not finished."""
    began, folder = core.began, str(path)
    if began is None:
        raise FedtwinError(f"{folder!r} cannot be resumed: the ledger is empty, the run never began; remove the folder.")
    if began.config_hash != config_hash(core.config, load_models=False):
        raise FedtwinError(
            f"{folder!r} cannot be resumed: config.toml, or a file or code it names, has changed since the run began."
        )
    if began.protocol != PROTOCOL_VERSION:
        raise FedtwinError(
            f"{folder!r} cannot be resumed: the run speaks protocol {began.protocol}, this is {PROTOCOL_VERSION}."
        )
    if core.finished and (path / SUMMARY_NAME).exists():
        raise FedtwinError(f"{folder!r} cannot be resumed: this run is finished, there is nothing to resume.")
