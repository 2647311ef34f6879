"""Writes docs/api.md from the signatures and docstrings of what ``fedtwin`` exports: ``python docs/make_api.py``."""

import enum
import inspect
import re
import sys
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from textwrap import indent
from types import GenericAlias
from typing import Any

import fedtwin
import fedtwin.learning.aggregation
import fedtwin.live
import fedtwin.policies
import fedtwin.testing

MEMBERS = (property, cached_property, classmethod, staticmethod)
PAGE = Path(__file__).with_name("api.md")
ROOMS = {
    "fedtwin": (fedtwin, "Everything a script needs. Imported when first used: `import fedtwin` itself costs nothing."),
    "fedtwin.policies": (fedtwin.policies, "What a policy of one's own is made of; see [own code](own_code.md)."),
    "fedtwin.learning.aggregation": (
        fedtwin.learning.aggregation,
        "What an aggregation rule of one's own is made of; see [own code](own_code.md#an-aggregation-rule-of-your-own).",
    ),
    "fedtwin.testing": (fedtwin.testing, "Checkers of what one writes oneself; fedtwin holds its own parts to the same."),
    "fedtwin.live": (fedtwin.live, "The live fleet from Python; see [the live fleet](live.md)."),
}


def page() -> str:
    parts = [
        "# Python\n",
        "Made by `python docs/make_api.py` from the docstrings; a test fails when it is out of date.",
        "Errors a user can mend are `fedtwin.FedtwinError`, one sentence each.\n",
    ]
    told: set[int] = set()
    for room, (module, introduction) in ROOMS.items():
        parts += [f"## {room}\n", introduction + "\n"]
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            if inspect.ismodule(thing):  # a room that is called like the function it is for
                thing = getattr(thing, name)
            if not name.startswith("__") and callable(thing) and id(thing) not in told:
                told.add(id(thing))
                parts += _entry(f"{room}.{name}", thing)
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, thing: Any) -> list[str]:
    if inspect.isfunction(thing):
        return [f"### {name}\n", _code(f"{name}{_signature(thing)}"), _text(thing)]
    lines = [f"### {name}\n"]
    if not _is_data(thing) and not issubclass(thing, BaseException) and "__init__" in vars(thing):
        lines.append(_code(f"{name}{_signature(thing)}"))
    lines.append(_text(thing))
    lines += _fields(thing) if _is_data(thing) else []
    for member, value in vars(thing).items():
        if member.startswith("_") or not (inspect.isfunction(value) or isinstance(value, MEMBERS)):
            continue
        is_attribute = isinstance(value, property | cached_property)
        function = value.fget if isinstance(value, property) else getattr(value, "func", getattr(value, "__func__", value))
        if function.__doc__:
            shown = f".{member}" if is_attribute else f".{member}{_signature(function)}"
            lines.append(f"- `{shown}`: {indent(_text(function).strip(), '  ').strip()}")
    return [*lines, ""] if lines[-1].startswith("- ") else lines


def _is_data(thing: Any) -> bool:
    return is_dataclass(thing) or hasattr(thing, "_fields") or hasattr(thing, "model_fields")


def _fields(thing: Any) -> list[str]:
    if hasattr(thing, "model_fields"):
        return []
    if hasattr(thing, "_fields"):
        defaults = thing._field_defaults
        shown = [f"`{name}`" + (f" = `{_default(defaults[name])}`" if name in defaults else "") for name in thing._fields]
    else:
        shown = [
            f"`{field.name}`" + (f" = `{_default(field.default)}`" if field.default is not MISSING else "")
            for field in fields(thing)
            if not field.name.startswith("_")
        ]
    return [f"Fields: {', '.join(shown)}.\n"]


def _default(value: Any) -> str:
    return str(value.value) if isinstance(value, enum.Enum) else repr(value) if not callable(value) else value.__name__


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    text = text.replace(repr(sys.executable), "'python'")
    returned = signature.return_annotation
    if returned in (inspect.Signature.empty, None, "None", Any):
        return text
    plain_class = isinstance(returned, type) and not isinstance(returned, GenericAlias)
    name = returned.__name__ if plain_class else str(returned)
    return f"{text} -> {re.sub(r'[a-z_.]+[.](?=[A-Z])', '', name)}"


def _code(text: str) -> str:
    return f"```\n{text}\n```\n"


def _text(thing: Any) -> str:
    documented = inspect.getdoc(thing)
    if not documented:
        raise SystemExit(f"{thing.__module__}.{thing.__qualname__} has no docstring")
    return documented.replace("``", "`") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
