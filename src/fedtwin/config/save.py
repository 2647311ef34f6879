"""From a Config to TOML, to flat settings, and to the hash that names it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import tomli_w

from fedtwin.config.schema import Config


def to_toml(config: Config) -> str:
    """The whole configuration as TOML; reading it back gives an equal Config."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def settings(config: Config) -> dict[str, Any]:
    """Every setting as ``{"section.key": value}``; a fleet file counts by its content, not by its place."""
    flat = {f"{section}.{key}": value for section, keys in _sections(config).items() for key, value in keys.items()}
    if config.fleet.file is not None:
        flat["fleet.file"] = hashlib.sha256(Path(config.fleet.file).read_bytes()).hexdigest()
    return flat


def _sections(config: Config) -> dict[str, dict[str, Any]]:
    """Settings by section; a run that does not learn has no learning section."""
    sections: dict[str, dict[str, Any]] = config.model_dump(mode="json")
    if config.learning is None:
        del sections["learning"]
    return sections


def config_hash(config: Config) -> str:
    """Sixteen hexadecimal digits that name the configuration: the same settings give the same digits anywhere."""
    text = json.dumps(settings(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
