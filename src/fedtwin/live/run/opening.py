"""How a run begins in a new folder, and goes on in one that is there."""

import logging
import shutil
from pathlib import Path

from fedtwin import __version__
from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.ledger import LEDGER_NAME, Ledger
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.model import MODELS, digest_of, model_path
from fedtwin.live.run.past import beginning_of, has_ledger, settings_of
from fedtwin.live.run.read_back import read_back
from fedtwin.live.run.repair import PLAN_NAME, go_on_with_repair
from fedtwin.live.run.repair import repair as go_back
from fedtwin.live.wire.ports import Clock, Disk
from fedtwin.live.wire.protocol import PROTOCOL_VERSION
from fedtwin.live.wire.real import CLOCK, DISK
from fedtwin.records.files import CONFIG_NAME, write_config
from fedtwin.records.lock import Lock


def begin(folder: Path, config: Config, run: str, initial: bytes, *, clock: Clock = CLOCK, disk: Disk = DISK) -> LiveRun:
    """A new run in a new folder, which is there whole or not at all. Whether it averages stays, however many rounds are set."""
    if config.learning is not None:
        learning = config.learning.model_copy(update={"average": "ema" if config.averages else "none"})
        config = config.model_copy(update={"learning": learning})
    Core(config)  # what is not for a live fleet is said before anything is made
    aggregation_of(config)
    if config.learning is not None:
        if config.learning.record_gradient:
            raise FedtwinError(
                "learning.record_gradient = true is for simulations only: it needs the samples of all devices in one place."
            )
        if "cuda" in (config.learning.executor, config.learning.device):
            raise FedtwinError(
                "learning.executor and learning.device = 'cuda' are for simulations only: every board trains on what it has."
            )
    require_new(folder)
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
                wall_s=clock.wall_s(),
                config_hash=config_hash(load_config(draft / CONFIG_NAME), load_models=False),
                package_version=__version__,
                protocol=PROTOCOL_VERSION,
                model_bytes=len(initial),
                model_sha256=digest_of(initial),
                config=(draft / CONFIG_NAME).read_text(encoding="utf-8"),
            )
        )
        ledger.close()
        draft.rename(folder)
    except OSError as error:
        raise FedtwinError(f"out = {str(folder)!r} cannot be written: {error.strerror}.") from None
    return LiveRun(folder, resumed=False, clock=clock, disk=disk)


def require_new(folder: Path) -> None:
    """Nothing is ever written over."""
    if folder.exists():
        raise FedtwinError(f"out = {str(folder)!r} exists already: name a folder that does not, nothing is overwritten.")


def resume(folder: Path, *, repair: bool = False, lock: Lock | None = None, clock: Clock = CLOCK, disk: Disk = DISK) -> LiveRun:
    """A run that was begun before, as its ledger has it; with ``repair`` it goes back to the last state that verifies.

    ``lock``: the folder's, where it is held already. A repair that was begun and killed is finished first.
    """
    require_ledger(folder)
    repaired(folder, lock, begin=repair)
    return LiveRun(folder, resumed=True, lock=lock, clock=clock, disk=disk)


def check_resumable(folder: Path) -> None:
    """What ``resume`` would refuse is refused in the same words, and nothing is written.

    Not looked at are a run whose repair was begun, and one whose ledger is at the broker, which has the files too.
    """
    require_ledger(folder)
    live = settings_of(folder, beginning_of(folder)).live
    if not (folder / PLAN_NAME).exists() and (live is None or live.ledger == "file"):
        read_back(folder)


def require_ledger(folder: Path) -> None:
    if not has_ledger(folder):
        raise FedtwinError(f"{str(folder)!r} is not the folder of a live run.")


def repaired(folder: Path, lock: Lock | None = None, *, begin: bool = True) -> None:
    """The run is back at the last state that verifies; without ``begin`` only if a repair was begun before."""
    done = go_back(folder, lock) if begin else go_on_with_repair(folder, lock)
    if done is not None:
        say(
            logging.WARNING, "repaired: the run went back to the last state that verifies", version=done.version,
            uploads_lost=done.uploads, lines_cut_off=done.lines, kept_in=done.folder,
        )  # fmt: skip
