"""A policy or a world of the user's own that asks what each process answers otherwise runs for a while in a second one too."""

import hashlib
import sys
import warnings

from fedtwin.config import Config, identity_of
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.processes import asked_elsewhere
from fedtwin.records import Row
from fedtwin.sim import asynchronous, synchronous
from fedtwin.sim.engine import Engine
from fedtwin.usercode import load_object, mentions, only_here

OF_THE_PROCESS = {"hash", "__hash__", "id", "getpid"}
"""The hash of a text, where something lies, and who runs it."""
ROUNDS = 20
_compared: set[tuple[str, ...]] = set()
"""What has passed in this process: the runs of a sweep ask once."""


def require_the_same_elsewhere(config: Config) -> None:
    """What only this process has, a policy of a notebook, cannot be had in another one, and is not asked."""
    own = {setting: name for setting, name in config.own_code.items() if not setting.startswith("learning.")}
    loaded = {setting: load_object(setting, name, config.code.folder) for setting, name in own.items()}
    named = [setting for setting, value in loaded.items() if mentions(value, OF_THE_PROCESS)]
    if not named or any(map(only_here, own.values())) or not sys.executable:
        return
    digests = identity_of(config).code
    key = (*(digests[setting] for setting in own), config.policy.model_dump_json(), config.world.model_dump_json())
    if key in _compared:
        return
    first = config.run.model_copy(update={"rounds": min(config.run.rounds, ROUNDS)})
    short = config.model_copy(update={"run": first, "learning": None})
    who = " and ".join(f"{setting} = {own[setting]!r}" for setting in named)
    found = asked_elsewhere(__name__, decisions_of.__name__, short)
    if found is None:
        sentence = f"{who} could not be run in a second process: whether the same is decided there is not known."
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)
    elif found != decisions_of(short):
        raise FedtwinError(
            f"{who} gives other numbers in another process: nothing may depend on hash, id or the process "
            "(random numbers of a device and a round are in fedtwin.draws)."
        )
    _compared.add(key)


def decisions_of(config: Config) -> str:
    """The digest of all decisions of a run."""
    engine, rows = Engine(config), hashlib.sha256()

    def emit(row: Row, charged_s: float) -> None:
        rows.update(f"{row!r} {charged_s!r}\n".encode())

    play = asynchronous.run if config.run.mode == "async" else synchronous.run
    play(engine, emit, lambda: None)
    return rows.hexdigest()
