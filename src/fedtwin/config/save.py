"""From a Config to TOML, to flat settings, and to the hash that names it."""

import hashlib
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import tomli_w

from fedtwin.compiling import reached
from fedtwin.config.schema import Config
from fedtwin.errors import FedtwinError

WITHOUT_INFLUENCE = ("run.engine", "run.records", "learning.executor", "learning.device", "learning.workers")


def to_toml(config: Config) -> str:
    """The whole configuration as TOML; reading it back gives an equal Config."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def settings(config: Config) -> dict[str, Any]:
    """Every setting as ``{"section.key": value}``; files and sources of the user count by content, not by place."""
    flat = {f"{section}.{key}": value for section, keys in _sections(config).items() for key, value in keys.items()}
    if config.fleet.file is not None:
        flat["fleet.file"] = _digest(Path(config.fleet.file))
    if ":" in config.policy.name:
        flat["policy.source"] = _policy_digest(config.policy.name)
    if config.learning is not None and ":" in config.learning.model:
        flat["learning.model_source"] = _source_digest(config.learning.model)
    if config.learning is not None and config.learning.dataset.endswith(".npz"):
        flat["learning.dataset"] = _digest(Path(config.learning.dataset))
    return flat


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise FedtwinError(f"{str(path)!r}, which the configuration names, cannot be read: {error.strerror}.") from None


def _source_digest(name: str) -> str:
    """The source of a user's own policy or model: a changed one is another run."""
    try:
        found = find_spec(name.partition(":")[0])
    except (ImportError, ValueError, AttributeError):
        found = None
    return _digest(Path(found.origin)) if found is not None and found.origin and Path(found.origin).exists() else "unknown"


def _policy_digest(name: str) -> str:
    """The sources of a user's own policy, with those of the functions it calls, wherever these are."""
    module, _, attribute = name.partition(":")
    try:
        policy = getattr(import_module(module), attribute)
        functions = [one for one in (policy.score, getattr(policy, "lead", None)) if isinstance(one, FunctionType)]
        called = {Path(one.__code__.co_filename) for function in functions for one in reached(function, {}, {})}
    except Exception:
        called = set()
    ours = Path(__file__).parent.parent
    digests = sorted({_digest(path) for path in called if path.exists() and not path.is_relative_to(ours)})
    return hashlib.sha256(" ".join([_source_digest(name), *digests]).encode()).hexdigest()


def _sections(config: Config) -> dict[str, dict[str, Any]]:
    """Settings by section; a run that does not learn has no learning section, a simulated one no live section."""
    sections: dict[str, dict[str, Any] | None] = config.model_dump(mode="json")
    return {name: keys for name, keys in sections.items() if keys is not None}


def _whose_bits(config: Config) -> dict[str, str]:
    """All executors of the CPU give the same bits, CUDA gives others; ``auto`` is never CUDA unless the device is."""
    learning = config.learning
    return {"learning.bits": "cuda"} if learning is not None and "cuda" in (learning.executor, learning.device) else {}


def config_hash(config: Config) -> str:
    """Sixteen hexadecimal digits that name the configuration: the same settings give the same digits anywhere.

    Settings on which no number depends are left out; of those that say how trainings are computed, CPU or CUDA counts.
    """
    numbers = {key: value for key, value in settings(config).items() if key not in WITHOUT_INFLUENCE} | _whose_bits(config)
    text = json.dumps(numbers, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
