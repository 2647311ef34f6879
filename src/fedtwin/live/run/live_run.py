"""One live run on disk: core, ledger and model together, without a network.

An upload is mixed in exactly once or never. The order is: the new model is written, then its event, and only then is the upload
acknowledged. Whatever is killed in between, the ledger says what has happened; an upload that comes again is told by its token.
"""

import logging
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fedtwin import __version__
from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.learning.layout import Weights
from fedtwin.live.logs import say
from fedtwin.live.run import admission, events
from fedtwin.live.run.core import Core, OpenTask
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME, Ledger, cut_torn_line, read_events
from fedtwin.live.run.model import LiveModel, model_path
from fedtwin.live.wire.protocol import PROTOCOL_VERSION, UPLOAD_SLACK_BYTES, Done
from fedtwin.live.wire.tensors import UnfitError
from fedtwin.records.folder import CONFIG_NAME, LOCK_NAME, SUMMARY_NAME, write_config
from fedtwin.records.lock import Lock

MODELS = "models"


def begin(folder: Path, config: Config, run: str, initial: bytes) -> "LiveRun":
    """A new run in a new folder, which is there whole or not at all."""
    Core(config)  # what is not for a live fleet is said before anything is made
    if folder.exists():
        raise FedtwinError(f"--out {str(folder)!r} exists already: name a folder that does not, nothing is overwritten.")
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        (draft / MODELS).mkdir(parents=True)
        write_config(draft, config)
        write_whole(model_path(draft / MODELS, 0), initial)
        ledger = Ledger(draft / LEDGER_NAME, fsync=True)
        ledger.append(
            events.Began(
                at_s=0.0,
                run=run,
                wall_s=time.time(),
                config_hash=config_hash(load_config(draft / CONFIG_NAME), load_models=False),
                package_version=__version__,
                protocol=PROTOCOL_VERSION,
                model_bytes=len(initial),
            )
        )
        ledger.close()
        draft.rename(folder)
    except OSError as error:
        raise FedtwinError(f"--out {str(folder)!r} cannot be written: {error.strerror}.") from None
    return LiveRun(folder, resumed=False)


def resume(folder: Path) -> "LiveRun":
    """A run that was begun before, as its ledger has it."""
    if not (folder / LEDGER_NAME).exists():
        raise FedtwinError(f"--resume {str(folder)!r} is not the folder of a live run.")
    return LiveRun(folder, resumed=True)


Listener = Callable[[Event, "LiveRun"], None]


class LiveRun:
    """The run in a folder. ``commit`` is the only way anything happens."""

    def __init__(self, folder: Path, *, resumed: bool) -> None:
        self.folder = folder
        self.listeners: list[Listener] = []
        self._lock = Lock(folder / LOCK_NAME)
        try:
            self.config = load_config(folder / CONFIG_NAME)
            self.core = Core(self.config)
            fsync = self.core.live.fsync
            path = folder / LEDGER_NAME
            cut_torn_line(path)
            for event in read_events(path):
                self.core.apply(event)
            self._check_it_is_the_same()
            self._set_the_clock()
            self._ledger = Ledger(path, fsync=fsync)
            self.model = LiveModel(folder / MODELS, self.config, version=self.core.version, fsync=fsync)
            self.model.keep_only(self._versions_needed())
            if resumed and not self.core.finished:
                self.commit(events.Resumed(at_s=self.now_s()))
        except BaseException:
            self._lock.release()
            raise

    @property
    def name(self) -> str:
        assert self.core.began is not None
        return self.core.began.run

    def _set_the_clock(self) -> None:
        """By the wall clock once, so that the time we were away has passed; never back, whatever that clock says."""
        began = self.core.began
        wall_s = 0.0 if began is None else (time.time() - began.wall_s) / self.core.live.time_scale
        self._start_s, self._started_at = max(self.core.last_at_s, wall_s), time.monotonic()

    def now_s(self) -> float:
        """The run's clock: wall seconds since it began over its time scale, steady while this process lives."""
        return self._start_s + (time.monotonic() - self._started_at) / self.core.live.time_scale

    def arrival_s(self, broker_wall_s: float) -> float:
        """When the broker took a message, on the run's clock."""
        return self.now_s() - max(0.0, time.time() - broker_wall_s) / self.core.live.time_scale

    def commit(self, event: Event) -> None:
        """It is in the ledger, and so it has happened."""
        self._ledger.append(event)
        self._happened(event)

    def _happened(self, event: Event) -> None:
        self.core.apply(event)
        for listener in self.listeners:
            listener(event, self)

    def close(self) -> None:
        self._ledger.close()
        self._lock.release()

    # What devices say

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
        device = self.core.number_of(name)
        task = self.core.task_of(device) if device is not None else None
        if task is not None:
            self.commit(self.core.give_up(task, self.now_s(), f"quarantined: {reason}", "quarantined"))
        self.commit(self.core.quarantine(name, reason, self.now_s()))
        say(logging.WARNING, "quarantined", device=name, reason=reason)

    def quarantine_if_its_own(self, name: str, data: bytes, reason: str) -> None:
        """A message that cannot be read is held against a device only if it carries the secret token of its task.

        The broker's own words can be directed onto the subject of a device by another one.
        """
        device = self.core.number_of(name)
        task = self.core.task_of(device) if device is not None else None
        if task is not None and task.sent.token.encode() in data:
            self.quarantine(name, reason)

    def upload_is_expected(self, name: str, token: str, size: int) -> str | None:
        """Why the bytes of an upload need not even be kept, or None."""
        found = admission.find_task(self.core, name, token, None)
        if found.reason is not None:
            return found.reason
        return f"size: {size} bytes, and the model has {self.model.codec.size}" if size > self.most_upload_bytes else None

    @property
    def most_upload_bytes(self) -> int:
        return self.model.codec.size + UPLOAD_SLACK_BYTES

    def receive(self, name: str, done: Done, body: bytes | memoryview | None, arrived_s: float) -> str | None:
        """An upload has come whole. It is mixed in and on disk when this returns None; or the reason it was refused for."""
        found = admission.find_task(self.core, name, done.token, done.version)
        if found.task is None or found.reason is not None:
            return self._refused(name, done.token, found.reason or "", attack=found.attack, task=found.task)
        if self.core.is_quarantined(name):
            return self._refused(name, done.token, "quarantined: the device failed a check before", task=found.task)
        if body is None:
            return self._refused(name, done.token, "missing: the result came without its upload", task=found.task)
        bad = admission.bad_claim(self.core, name, done, self.config)
        if bad is None and len(body) != done.model_bytes:
            bad = f"size: {len(body)} bytes came, {done.model_bytes} were announced"
        if bad is not None:
            return self._refused(name, done.token, bad, attack=True)
        try:
            upload = self.model.codec.decode(body)
        except UnfitError as error:
            return self._refused(name, done.token, str(error), attack=True)
        bad = admission.bad_weights(self.model.weights, upload, self.core.live)
        if bad is not None:
            return self._refused(name, done.token, bad, attack=True)
        start = self.model.start_of(found.task.sent.version)
        if start is None:
            return self._refused(name, done.token, "stale: the model it started from is gone", task=found.task)
        sent_s = found.task.sent.at_s
        elapsed_s = (arrived_s if arrived_s > sent_s else self.now_s()) - sent_s  # a clock that was set back buys nothing
        self._mix(found.task, done, start, upload, elapsed_s, late=found.late)
        return None

    def _mix(self, task: OpenTask, done: Done, start: Weights, upload: Weights, elapsed_s: float, *, late: bool) -> None:
        core, sent = self.core, task.sent
        believed = admission.believe(done, elapsed_s, core.terms, core.live)
        staleness, old_version = core.version - sent.version, core.version
        weights, changed = self.model.mixed(start, upload, core.changes - task.changes, float(done.samples))
        self.model.save(old_version + 1, weights, changed=changed)
        sources = {key: getattr(done, key).source for key in ("compute_s", "upload_s", "compute_j", "upload_j")}
        self.commit(
            events.Applied(
                at_s=self.now_s(),
                token=sent.token,
                device=sent.device,
                version=old_version + 1,
                changed=changed,
                staleness=staleness,
                late=late,
                compute_s=believed.compute_s,
                upload_s=believed.upload_s,
                compute_j=believed.compute_j,
                upload_j=believed.upload_j,
                cost=believed.cost,
                train_loss=done.train_loss,
                elapsed_s=elapsed_s,
                reported_s=believed.reported_s,
                believed=believed.agrees,
                sources={**sources, "cpu_hz": done.cpu_source},
                link_s=done.link_s.value,
                uploaded_bytes=done.model_bytes,
            )
        )
        if self.model.needs_start:
            self.model.keep_only(self._versions_needed())
        else:
            self.model.forget(old_version - 1)

    def _refused(self, name: str, token: str, reason: str, *, attack: bool = False, task: OpenTask | None = None) -> str:
        """Recorded; what no honest device sends is answered by quarantine, and a task that ends so is given up."""
        self.refuse(name, "result", reason, token)
        if attack:
            self.quarantine(name, reason)
        elif task is not None and task.sent.token in self.core.open:
            self.commit(self.core.give_up(task, self.now_s(), f"refused: {reason}", "idle"))
        return reason

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

    def _check_it_is_the_same(self) -> None:
        began, folder = self.core.began, str(self.folder)
        if began is None:
            raise FedtwinError(f"--resume {folder!r}: the ledger is empty, the run never began; remove the folder.")
        if began.config_hash != config_hash(self.config, load_models=False):
            raise FedtwinError(
                f"--resume {folder!r}: config.toml, or a file or code it names, has changed since the run began."
            )
        if began.protocol != PROTOCOL_VERSION:
            raise FedtwinError(f"--resume {folder!r}: the run speaks protocol {began.protocol}, this is {PROTOCOL_VERSION}.")
        if self.core.finished and (self.folder / SUMMARY_NAME).exists():
            raise FedtwinError(f"--resume {folder!r}: this run is finished, there is nothing to resume.")


def new_token() -> str:
    """Nobody can guess it."""
    return secrets.token_hex(16)
