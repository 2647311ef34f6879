"""From whatever a caller has to a configuration: a Config, a TOML file, a dict, or nothing."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from fedtwin.config.load import beside, build_config, load_config, replace_settings
from fedtwin.config.schema import Config
from fedtwin.errors import FedtwinError

ConfigLike = Config | Mapping[str, Any] | str | PathLike[str] | None
"""A configuration, settings as a dictionary, the path of a TOML file, or None for the defaults."""


def config_of(source: ConfigLike, settings: Mapping[str, Any] | None = None, *, code_in: Sequence[Path] = ()) -> Config:
    """The configuration, with ``{"section.key": value}`` laid over it. A dict is nested as TOML is, or has such names itself.

    Code of the user's is looked for beside the file, then in the folders of ``code_in``.
    """
    over = dict(settings or {})
    if source is None or isinstance(source, str | PathLike):
        return load_config(None if source is None else Path(source), over, code_in=code_in)
    if isinstance(source, Config):
        found = replace_settings(source, over) if over else source
    elif isinstance(source, Mapping):
        flat = {name: value for name, value in source.items() if "." in str(name)}
        nested = {name: value for name, value in source.items() if name not in flat}
        _require_one_way(flat, nested)
        found = build_config(nested, {**flat, **over})
    else:
        raise FedtwinError(
            f"config = {source!r} is a {type(source).__name__}: a Config, a dictionary of settings, the path of a TOML file or "
            "nothing is needed."
        )
    return beside(found, *code_in) if code_in else found


def _require_one_way(flat: Mapping[str, Any], nested: Mapping[str, Any]) -> None:
    for name, value in flat.items():
        section, _, key = str(name).partition(".")
        keys = nested.get(section)
        if isinstance(keys, Mapping) and key in keys:
            twice = f'"{name}": {value!r} and "{section}": {{"{key}": {keys[key]!r}}}'
            raise FedtwinError(f"{name} is given twice, as {twice}: leave one out.")


def folder_of(source: ConfigLike) -> Path:
    """Where files and code that the source names are looked for."""
    return Path(source).parent if isinstance(source, str | PathLike) else Path.cwd()
