"""One live run on disk: core, ledger and model together, without a network.

An upload is mixed in exactly once or never. The order is: the new model is written, then its event, and only then is the upload
acknowledged. Whatever is killed in between, the ledger says what has happened; an upload that comes again is told by its token.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Upload
from fedtwin.live.logs import say
from fedtwin.live.run import admission, events
from fedtwin.live.run.admission import Admitted, NotAdmitted
from fedtwin.live.run.clock import RunClock
from fedtwin.live.run.core import OpenTask
from fedtwin.live.run.events import Event
from fedtwin.live.run.keepsakes import Keepsakes
from fedtwin.live.run.ledger import LEDGER_NAME, Ledger, cut_torn_line, segment_path
from fedtwin.live.run.model import MODELS, LiveModel
from fedtwin.live.run.read_back import read_back
from fedtwin.live.run.salvage import damage_before
from fedtwin.live.run.settable import OF_THE_RULE, check_limit, check_settable, config_with
from fedtwin.live.run.snapshots import Taken, write_snapshot
from fedtwin.live.run.stream_ledger import StreamLedger
from fedtwin.live.run.tasks import remember
from fedtwin.live.wire.ports import Clock, Disk
from fedtwin.live.wire.protocol import Done, Failed
from fedtwin.live.wire.real import CLOCK, DISK
from fedtwin.records.files import LOCK_NAME
from fedtwin.records.lock import Lock

Listener = Callable[[Event, "LiveRun"], None]
Steering = Literal["pause", "resume", "drain", "finish"]


class LiveRun:
    """The run in a folder. ``commit`` is the only way anything happens."""

    def __init__(
        self, folder: Path, *, resumed: bool, lock: Lock | None = None, clock: Clock = CLOCK, disk: Disk = DISK
    ) -> None:
        self.folder, self._disk, self._wall = folder, disk, clock
        self.listeners: list[Listener] = []
        self.failure: FedtwinError | None = None
        self._unwritten: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._stream: StreamLedger | None = None
        self._lock = lock or Lock(folder / LOCK_NAME)
        try:
            cut_torn_line(folder / LEDGER_NAME)
            began, self.config, past, self.core, self.model, not_read = read_back(folder, disk)
            self._kept, fsync = past.kept, self.core.live.fsync
            self.keepsakes = Keepsakes(folder, self.core, lambda: self.model.codec, disk, fsync=fsync)
            self._tell_what_is_damaged(*not_read)
            self._clock = RunClock(self.core.live.time_scale, self.core.last_at_s, began.wall_s, clock)
            self._ledger = Ledger(past.reader.segment, fsync=fsync, after=past.reader.digits or "", disk=disk)
            self._remove_what_is_not_needed()
            if self._kept.segment_is_full and past.reader.place > 0:
                self._begin_segment()
            if resumed and not self.core.finished:
                self.commit(events.Resumed(at_s=self.now_s()))
        except BaseException:
            self._lock.release()
            raise

    def _tell_what_is_damaged(self, lines: int, digits: str) -> None:
        """What the run can go on without; of so many lines before its snapshot, the last of which had these digits."""
        if lines and (damage := damage_before(self.folder / LEDGER_NAME, lines, digits)) is not None:
            what = "the ledger is damaged before the snapshot that the run goes on from: its tables will lack what stood there"
            say(logging.WARNING, what, damage=damage)
        for version in sorted(self._starts_of_tasks()):
            if self.model.start_of(version) is None:
                what = "a model that tasks began with is gone or damaged: their uploads will be refused"
                say(logging.WARNING, what, version=version, why=self.model.why_no_start(version))

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
        """It is in the ledger, and so it has happened; where that is at the broker, outside only when it is ``settled``.

        Where it cannot be written the run cannot go on: its ``failure``.
        """
        try:
            (self._stream or self._ledger).append(event)
        except FedtwinError as error:
            self.failure = self.failure or error
            raise self.failure from None
        self._kept.happened(event)
        self._happened(event)
        if self._kept.segment_is_full:
            self._begin_segment()

    def _begin_segment(self) -> None:
        """A snapshot first: whoever reads on from it begins in the new segment."""
        taken = Taken((self._stream or self._ledger).digits, deepcopy(self._kept), self.core.state.snapshot())
        if self._stream is None:
            self._write_segment(taken)
        else:  # when the folder has the lines before it
            self._stream.then(lambda: self._write_segment(taken))

    def _write_segment(self, taken: Taken) -> None:
        try:
            write_snapshot(self.folder, taken, fsync=self.core.live.fsync, disk=self._disk)
            self._ledger.begin_segment(segment_path(self.folder / LEDGER_NAME, taken.kept.lines + 1))
        except OSError as error:
            say(logging.WARNING, "no snapshot could be written, the segment goes on", reason=error.strerror)

    def write_to(self, stream: StreamLedger) -> None:
        """From now on the ledger is at the broker, and the folder has a copy."""
        stream.copy_to(self._ledger)
        self._stream = stream

    def written_model(self) -> LiveModel:
        """As of the last line that was written: what was mixed in since has not happened."""
        return LiveModel(self.folder / MODELS, self.core.config, self._kept, fsync=self.core.live.fsync, disk=self._disk)

    async def settled(self) -> None:
        """Whatever was committed is in the ledger, wherever that is."""
        if self._stream is not None:
            await self._stream.settled()

    def _happened(self, event: Event) -> None:
        self.core.state.apply(event)
        self._tell(event)

    def _tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event, self)

    def close(self) -> None:
        try:
            self._ledger.close()
        finally:
            self._lock.release()

    # What devices are told off for

    def refuse(self, name: str, what: str, reason: str, token: str | None = None) -> None:
        """Counted always, written down the 1st, 2nd, 4th, 8th, … time: a device that floods does not fill the disk."""
        kind = name, reason.partition(":")[0]
        event = self.core.refuse(name, what, reason, self.now_s(), token, unwritten=self._unwritten.pop(kind, 0))
        if event.count & (event.count - 1) == 0:
            self.commit(event)
            say(logging.WARNING, "refused", device=name, what=what, reason=reason, count=event.count)
        else:
            remember(self._unwritten, kind, event.count - self.core.refusals.get(kind, 0))
            self._tell(event)

    def quarantine(self, name: str, reason: str) -> None:
        """The device is left out; a task it has is over."""
        if name not in self.core.members or self.core.is_quarantined(name):
            return
        task = self._task_of(name)
        if task is not None:
            self.commit(self.core.give_up(task, self.now_s(), f"quarantined: {reason}", "quarantined"))
        self.commit(self.core.quarantine(name, reason, self.now_s()))
        say(logging.WARNING, "quarantined", device=name, reason=reason)

    # What a person orders

    def release(self, name: str, by: str = "operator", person: str | None = None) -> None:
        """A person lets a device back, whatever it was left out for."""
        self.commit(events.Released(at_s=self.now_s(), name=name, **self._audited(by, person)))
        say(logging.WARNING, "released", device=name, **_signed(by, person))

    def steer(self, command: Steering, by: str = "operator", person: str | None = None, *, name: str | None = None) -> None:
        """The run is paused, goes on, or ends in good order; or a device is given no task."""
        reason = f"{by} has said finish" if command == "finish" else None
        order = self._audited(by, person)
        self.commit(events.Steered(at_s=self.now_s(), command=command, name=name, reason=reason, **order))
        say(logging.WARNING, f"ordered: {command}", **({} if name is None else {"device": name}), **_signed(by, person))

    def change(self, setting: str, value: Any, by: str = "operator", person: str | None = None) -> None:
        """A setting has another value from now on; ``FedtwinError`` where it cannot."""
        check_settable(self.core.config, setting, value)
        check_limit(self.core.state, setting, value)
        state = None
        if setting in OF_THE_RULE:
            state = self.model.use(config_with(self.config, {**self.core.changed, setting: value}))
        self.commit(
            events.Changed(
                at_s=self.now_s(),
                setting=setting,
                value=value,
                round=self.core.round,
                version=self.core.version,
                state=state,
                **self._audited(by, person),
            )
        )
        if state is not None:
            self._remove_what_is_not_needed()
        say(logging.WARNING, "ordered: set", setting=setting, value=value, round=self.core.round, **_signed(by, person))

    def _audited(self, by: str, person: str | None) -> dict[str, Any]:
        return {"by": by, "person": person, "wall_s": self._wall.wall_s()}

    def _task_of(self, name: str) -> OpenTask | None:
        device = self.core.number_of(name)
        return self.core.task_of(device) if device is not None else None

    # What comes of an upload

    def receive(self, name: str, done: Done, body: bytes | memoryview | None, arrived_s: float) -> str | None:
        """An upload has come whole. It is mixed in and on disk when this returns None; or the reason it was refused for."""
        verdict = admission.admit(self.core, self.model, name, done, body, arrived_s=arrived_s, now_s=self.now_s())
        if isinstance(verdict, NotAdmitted):
            return self._turn_away(name, "result", verdict, done.token)
        try:
            self._mix(verdict, done)
        except FedtwinError as error:
            self.failure = self.failure or error
            raise
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
            model_sha256=None if core.sync else model.sha256,
            upload=kept if isinstance(kept, events.KeptUpload) else None,
            state=kept if isinstance(kept, events.KeptState) else None,
        )
        self.commit(event)
        if model.keeps_starts or self._files or self._kept.files or self._kept.states != self._states:
            self._remove_what_is_not_needed()
        elif old_version - 1 not in self._kept.versions(starts=False):
            self._kept.models.pop(old_version - 1, None)
            model.forget(old_version - 1)

    def close_round(self) -> bool:
        """A synchronous round that is over is closed: the new model first, then its event. False where there is none."""
        core, model, at_s = self.core, self.model, self.now_s()
        if not core.round_is_over(at_s) or core.current is None:
            return False
        uploads = core.current.uploads
        mixed = model.round_mixed(uploads)
        version = core.version + bool(uploads or mixed.changed)
        kept = model.save_round(core.round, version, mixed)
        closed = core.close_round(at_s, version, changed=mixed.changed, state=kept)
        self.commit(closed.model_copy(update={"model_sha256": model.sha256}))
        self._remove_what_is_not_needed()
        return True

    def _remove_what_is_not_needed(self) -> None:
        versions = self._kept.versions(starts=self.model.needs_start) | self._starts_of_tasks()
        self._files, self._states = self._kept.files, self._kept.states
        self._kept.forget_all_but(versions)
        self.model.keep_only(versions, self._files)

    def _starts_of_tasks(self) -> set[int]:
        """The versions that tasks began with whose upload would be taken."""
        live, version = self.core.live, self.core.version
        tasks = [*self.core.open.values()] if self.model.keeps_starts else []
        if self.model.keeps_starts and live.late == "mix":
            tasks += self.core.given_up.values()
        starts = {task.sent.version for task in tasks}
        return {start for start in starts if version - start <= live.max_staleness}


def _signed(by: str, person: str | None) -> dict[str, str]:
    return {"by": by} if person is None else {"by": by, "person": person}
