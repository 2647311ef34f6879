"""Configuration: one validated object, TOML in and out."""

from fedtwin.config.load import build_config, load_config, parse_assignment, read_toml, replace_settings, seen_from
from fedtwin.config.save import config_hash, settings, to_toml
from fedtwin.config.schema import Config, LearningConfig, LiveConfig

__all__ = [
    "Config",
    "LearningConfig",
    "LiveConfig",
    "build_config",
    "config_hash",
    "load_config",
    "parse_assignment",
    "read_toml",
    "replace_settings",
    "seen_from",
    "settings",
    "to_toml",
]
