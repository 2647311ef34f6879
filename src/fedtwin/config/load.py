"""From TOML and ``section.key=value`` to a validated Config, with one sentence where it fails."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from fedtwin.config.data_files import is_file_of_data
from fedtwin.config.schema import A_NUMBER, A_WORD, CodeConfig, Config
from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.given import path_or_none, settings_given
from fedtwin.registry import find_scheme
from fedtwin.usercode import forget_changed_code, is_in

Settings = dict[str, dict[str, Any]]
KEPT_CODE = "code"
FILES = ("fleet.file", "learning.dataset", "code.folder")


def load_config(
    path: str | Path | None = None, overrides: Mapping[str, Any] | None = None, *, code_in: Sequence[Path] = ()
) -> Config:
    """The configuration in a TOML file (or the defaults), with ``{"section.key": value}`` laid over it.

    Code of the user's is looked for beside the file, or in ``code/`` there, then in the folders ``code_in``, then as Python
    imports it.
    """
    file, over = path_or_none("path", path), settings_given("overrides", overrides)
    if file is None:
        return beside(build_config({}, over), *code_in)
    return beside(build_config(_seen_from(file.parent, read_toml(file)), over), file.parent, *code_in)


def beside(config: Config, *folders: Path) -> Config:
    """The same configuration, in which code of the user's is looked for in the folder that has it, if none is named."""
    modules = [name.partition(":")[0] for name in config.own_code.values()]
    if not modules or not folders:
        return config
    if config.code.folder is None:
        places = [place for folder in folders for place in (folder, folder / KEPT_CODE)]
        most = max(places, key=lambda folder: sum(is_in(folder, module) for module in modules))
        config = config.model_copy(update={"code": CodeConfig(folder=str(most.resolve()))})
    forget_changed_code(str(config.code.folder))
    return config


def build_config(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> Config:
    """The configuration in nested settings, with ``{"section.key": value}`` laid over it, validated."""
    data: dict[str, Any] = {section: dict(keys) if isinstance(keys, Mapping) else keys for section, keys in base.items()}
    for name, value in overrides.items():
        keys, key = _place(data, str(name))
        if keys is None:
            raise FedtwinError(f"{name} = {value!r} is not a setting: write section.key=value, such as run.rounds=100.")
        keys[key] = value
        if name == "policy.name" and isinstance(value, str) and "run.mode" not in overrides:
            _let_scheme_set_the_mode(data, value)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise FedtwinError(_one_sentence(error)) from None


def _place(data: dict[str, Any], name: str) -> tuple[dict[str, Any] | None, str]:
    """Where a setting stands, ``policy.settings.key`` one level deeper; None where none can stand."""
    section, *inner = name.split(".")
    keys: Any = data.setdefault(section, {})
    if len(inner) == 2 and inner[0].endswith("settings") and isinstance(keys, dict):
        keys[inner[0]] = keys = dict(keys.get(inner[0]) or {})
        inner = inner[1:]
    return (keys, inner[0]) if len(inner) == 1 and inner[0] and isinstance(keys, dict) else (None, "")


def replace_settings(config: Config, overrides: Mapping[str, Any]) -> Config:
    """The same configuration with some settings changed, validated anew."""
    return build_config(config.model_dump(mode="json", exclude_none=True), overrides)


def parse_assignment(text: str) -> tuple[str, Any]:
    """``section.key=value`` as given on the command line; the value is read as TOML, or as bare text."""
    name, equals, raw = text.partition("=")
    if not equals or "." not in name:
        raise FedtwinError(f"--set {text!r} is not understood: write section.key=value, such as run.rounds=100.")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    return name.strip(), value


def _let_scheme_set_the_mode(data: dict[str, Any], name: str) -> None:
    """A scheme named over a file's policy brings its own synchrony along."""
    scheme = find_scheme(name)
    run = data.setdefault("run", {})
    if scheme is not None and isinstance(run, dict):
        run["mode"] = scheme.mode


def read_toml(path: Path, what: str = "configuration") -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(plain_file(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FedtwinError(f"The {what} {str(path)!r} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FedtwinError(f"The {what} {str(path)!r} is not valid TOML: {error}.") from None


def seen_from(folder: Path, name: str, value: Any) -> Any:
    """The value of a setting that stands in a file in ``folder``: a file it names is looked for from there."""
    if isinstance(value, str) and name in FILES and (name != "learning.dataset" or is_file_of_data(value)):
        return str((folder / value).resolve())
    return value


def _seen_from(folder: Path, settings: Mapping[str, Any]) -> Settings:
    return {
        section: {key: seen_from(folder, f"{section}.{key}", value) for key, value in keys.items()}
        if isinstance(keys, dict)
        else keys
        for section, keys in settings.items()
    }


def _one_sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    place: Sequence[str] = [str(part) for part in first["loc"] if part not in (A_NUMBER, A_WORD)]
    name = ".".join(place)
    if first["type"] == "extra_forbidden":
        return _unknown(place)
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ").rstrip(".")
    if first["type"] in ("model_type", "model_attributes_type"):
        return f"{name or 'The configuration'} = {first['input']!r} is not a section of settings."
    if first["type"] == "value_error" and len(place) < 2:
        return f"[{name}] {message}." if name else f"{message}."
    if first["type"] == "value_error":
        return f"{name} = {first['input']!r} is not allowed: {message}."
    if first["type"] == "missing" and place[-1].isdigit():
        name, message = ".".join(place[:-1]), f"a list with {int(place[-1]) + 1} values"
    if first["type"] in ("tuple_type", "list_type"):
        message = "a list"
    if first["type"] == "too_long":
        message = f"a list with {first['ctx']['max_length']} values"
    return f"{name} = {first['input']!r} is not allowed: it must be {message}."


def _unknown(place: Sequence[str]) -> str:
    model: type[BaseModel] = Config
    for section in place[:-1]:
        annotation = model.model_fields[section].annotation
        for kind in get_args(annotation) or (annotation,):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    allowed = list(model.model_fields)
    close = difflib.get_close_matches(place[-1], allowed, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    kind = "setting" if len(place) > 1 else "section"
    return f"{'.'.join(place)} is not a {kind}{hint}: allowed are {', '.join(allowed)}."
