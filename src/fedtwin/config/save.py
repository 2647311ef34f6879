"""From a Config to TOML, to flat settings, and to the hash that names it."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedtwin.config.data_files import files_of_data, is_file_of_data
from fedtwin.config.schema import Config
from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.usercode import code_digest, source_digest

HASH_FORMAT = 2
SINCE_THE_HASH: dict[str, Any] = {
    "world.channel": "rayleigh",
    "world.load": "normal",
    "world.availability": "always",
    "world.sensing": "uniform",
    "twin.gain": "last-heard",
    "learning.average": "none",
    "learning.average_half_life": 138.0,
    "learning.charge_epochs": False,
    "run.sync_timeout_s": None,
    "learning.record_gradient": False,
    "live.ledger": "file",
    "live.limits_from_fleet": None,
    "live.stop_after_s": None,
    "live.stop_at_metric": None,
    "live.stop_without_progress": None,
    "learning.task": "classification",
    "learning.input": "auto",
    "learning.outputs": 0,
    "learning.loss": "auto",
    "learning.metric": "auto",
    "learning.metric_direction": "auto",
    "learning.optimiser": "sgd",
    "learning.momentum": 0.9,
    "learning.weight_decay": 0.0,
    "learning.clip_norm": 0.0,
    "learning.rate_schedule": "constant",
    "learning.rate_rounds": 0,
    "learning.rate_warmup_rounds": 0,
    "learning.augment": "none",
    "learning.compress": "none",
    "learning.top_k": 0.01,
    "learning.error_feedback": True,
}
"""Settings that came after the hash, with what they were before there was a choice: so they do not count."""
WITHOUT_INFLUENCE = ("run.engine", "run.records", "learning.executor", "learning.device", "learning.workers")


def to_toml(config: Config) -> str:
    """The whole configuration as TOML; reading it back gives an equal Config."""
    left_out = None if config.own_code and config.code.folder is not None else {"code"}
    sections = config.model_dump(mode="json", exclude_none=True, exclude=left_out)
    return tomli_w.dumps({name: _without_empty_tables(keys) for name, keys in sections.items()})


def settings(config: Config) -> dict[str, Any]:
    """Every setting as ``{"section.key": value}``; files of the user count by content, not by place. No code is run.

    Settings that a part declares for itself are there as they are given, under ``policy.settings.key`` and the like.
    """
    flat: dict[str, Any] = {}
    for section, keys in _sections(config).items():
        for key, value in keys.items():
            name = f"{section}.{key}"
            flat |= {f"{name}.{own}": given for own, given in value.items()} if isinstance(value, dict) else {name: value}
    if config.fleet.file is not None:
        flat["fleet.file"] = _digest(Path(config.fleet.file))
    if config.learning is not None and is_file_of_data(config.learning.dataset):
        flat["learning.dataset"] = _digest_of_data(Path(config.learning.dataset))
    return flat


def digests_of_code(config: Config, *, load_models: bool = True) -> dict[str, str]:
    """The digest of all code of the user's that the configuration names, by setting. It is loaded for that.

    An edge server does not load models and what trains them, nor PyTorch: there they count by their source.
    """
    folder, digests = config.code.folder, {}
    trains = config.learning.own_code if config.learning is not None else {}
    for setting, name in config.own_code.items():
        static = setting in trains and not load_models
        digests[setting] = source_digest(name, folder) if static else code_digest(setting, name, folder)
    return digests


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(plain_file(path).read_bytes()).hexdigest()
    except OSError as error:
        raise FedtwinError(f"{str(path)!r}, which the configuration names, cannot be read: {error.strerror}.") from None


def _digest_of_data(path: Path) -> str:
    """Of a folder by the names and digests of its files."""
    if not path.is_dir():
        return _digest(path)
    files = {file.name: _digest(file) for file in files_of_data(path)}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _sections(config: Config) -> dict[str, dict[str, Any]]:
    """Settings by section; a run that does not learn has no learning section, a simulated one no live section."""
    sections: dict[str, dict[str, Any] | None] = config.model_dump(mode="json", exclude={"code"})
    return {name: keys for name, keys in sections.items() if keys is not None}


def _without_empty_tables(keys: dict[str, Any]) -> dict[str, Any]:
    """A part without settings of its own leaves no table."""
    return {key: value for key, value in keys.items() if value != {}}


def _whose_bits(config: Config) -> dict[str, str]:
    """All executors of the CPU give the same bits, CUDA gives others; ``auto`` is never CUDA unless the device is."""
    learning = config.learning
    return {"learning.bits": "cuda"} if learning is not None and "cuda" in (learning.executor, learning.device) else {}


@dataclass(frozen=True)
class Identity:
    """What names a configuration: its hash, and the digests of the user's code in it, by setting."""

    hash: str
    code: dict[str, str]


def identity_of(config: Config, *, load_models: bool = True) -> Identity:
    """The configuration's identity as it is now; who needs it later keeps it, for code may change.

    Settings on which no number depends are left out; of those that say how trainings are computed, CPU or CUDA counts. Code of
    the user's counts by its digest.
    """
    code = digests_of_code(config, load_models=load_models)
    numbers = {key: value for key, value in settings(config).items() if key not in WITHOUT_INFLUENCE} | _whose_bits(config)
    if config.learning is not None:
        numbers["learning.average"] = "ema" if config.averages else "none"
    numbers = {key: value for key, value in numbers.items() if SINCE_THE_HASH.get(key) != value}
    numbers |= {f"code of {setting}": digest for setting, digest in code.items()}
    text = json.dumps(numbers, sort_keys=True, separators=(",", ":"))
    return Identity(hashlib.sha256(text.encode()).hexdigest()[:16], code)


def config_hash(config: Config, *, load_models: bool = True) -> str:
    """Sixteen hexadecimal digits that name the configuration: the same settings give the same digits anywhere."""
    return identity_of(config, load_models=load_models).hash
