"""Configuration: one validated object, TOML in and out."""

from fedtwin.config.load import beside, build_config, load_config, parse_assignment, read_toml, replace_settings, seen_from
from fedtwin.config.save import HASH_FORMAT, Identity, config_hash, digests_of_code, identity_of, settings, to_toml
from fedtwin.config.schema import CodeConfig, Config, LearningConfig, LiveConfig
from fedtwin.config.sources import ConfigLike, config_of, folder_of
from fedtwin.config.without_effect import without_effect

__all__ = [
    "HASH_FORMAT",
    "CodeConfig",
    "Config",
    "ConfigLike",
    "Identity",
    "LearningConfig",
    "LiveConfig",
    "beside",
    "build_config",
    "config_hash",
    "config_of",
    "digests_of_code",
    "folder_of",
    "identity_of",
    "load_config",
    "parse_assignment",
    "read_toml",
    "replace_settings",
    "seen_from",
    "settings",
    "to_toml",
    "without_effect",
]
