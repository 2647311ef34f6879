"""From whatever a caller has to a configuration: a Config, a TOML file, a dict, or nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtwin.config import Config, beside, build_config, load_config, replace_settings

ConfigLike = Config | str | Path | Mapping[str, Any] | None


def config_of(source: ConfigLike, settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration, with ``{"section.key": value}`` laid over it. A dict is nested as TOML is, or has such names itself.

    Code of the user's is looked for beside the file, then in the folder one works in.
    """
    over = dict(settings or {})
    if source is None or isinstance(source, str | Path):
        return load_config(source, over, code_in=[Path.cwd()])
    if isinstance(source, Config):
        return beside(replace_settings(source, over) if over else source, Path.cwd())
    nested = {name: value for name, value in source.items() if "." not in name}
    flat = {name: value for name, value in source.items() if name not in nested}
    return beside(build_config(nested, {**flat, **over}), Path.cwd())


def folder_of(source: ConfigLike) -> Path:
    """Where files and code that the source names are looked for."""
    return Path(source).parent if isinstance(source, str | Path) else Path.cwd()
