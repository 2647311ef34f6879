"""A run as its folder has it: read, and held against its files, with nothing written."""

from pathlib import Path
from typing import NamedTuple

from fedtwin.config import Config
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import Began
from fedtwin.live.run.going_on import check_it_can_go_on, check_nothing_is_missing_at_the_end
from fedtwin.live.run.ledger import DamageError
from fedtwin.live.run.model import MODELS, LiveModel
from fedtwin.live.run.past import Past, beginning_of, pasts_of, settings_of
from fedtwin.live.run.survey import told
from fedtwin.live.wire.ports import Disk
from fedtwin.live.wire.real import DISK


class ReadBack(NamedTuple):
    """``not_read``: how many lines before its snapshot, and the digits of the last of them."""

    began: Began
    config: Config
    past: Past
    core: Core
    model: LiveModel
    not_read: tuple[int, str]


def read_back(folder: Path, disk: Disk = DISK) -> ReadBack:
    """Or the sentence why it cannot go on."""
    began = beginning_of(folder)
    config = settings_of(folder, began)
    past = next(pasts_of(folder, config))
    core, not_read = Core(config, past.state), (past.kept.lines, past.reader.digits or "")
    try:
        past.replay()
        check_it_can_go_on(core.state, folder, began)
        model = LiveModel(folder / MODELS, core.config, past.kept, fsync=core.live.fsync, disk=disk)
        check_nothing_is_missing_at_the_end(folder, core.state)
    except DamageError as error:
        raise told(error, folder, config) from None
    return ReadBack(began, config, past, core, model, not_read)
