"""Settings that a part declares for itself: a policy, a channel, a load, an availability, an aggregation rule.

They are a ``NamedTuple`` of numbers with defaults, so that both engines hand them on as they are. ``Annotated[float,
Field(gt=0)]`` says more of a number.
"""

import difflib
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedtwin.errors import FedtwinError

LARGEST_WHOLE = 10**12
NO_SETTINGS: tuple[()] = ()


def check_schema(what: str, schema: Any, allowed: tuple[type, ...] = (float, int, bool)) -> None:
    """Whoever declares settings, or a state, hears at once what they cannot be."""
    words, named = " or ".join(kind.__name__ for kind in allowed), getattr(schema, "_fields", ())
    if not (isinstance(schema, type) and issubclass(schema, tuple) and named):
        raise FedtwinError(f"{what} = {schema!r} is not a NamedTuple class whose fields are {words}.")
    try:
        hints = get_type_hints(schema)
    except Exception as error:
        raise FedtwinError(f"{what}: the annotations of {schema.__name__} are not understood: {error}.") from None
    defaults = getattr(schema, "_field_defaults", {})
    for field in named:
        if hints.get(field) not in allowed:
            raise FedtwinError(f"{what}: {schema.__name__}.{field} must be annotated {words}.")
        if field not in defaults:
            raise FedtwinError(f"{what}: {schema.__name__}.{field} needs a default.")
        if type(defaults[field]) is not hints[field]:
            raise FedtwinError(f"{what}: the default of {schema.__name__}.{field} must be of type {hints[field].__name__}.")


def settings_of(setting: str, schema: Any, given: Mapping[str, Any]) -> Any:
    """The part's settings as its schema has them, or one sentence; ``()`` of a part without any.

    ``setting`` is the section they stand in, such as ``policy.settings``.
    """
    if schema is None:
        if given:
            raise FedtwinError(f"{setting}.{next(iter(given))} is not a setting: what is chosen there has no settings.")
        return NO_SETTINGS
    for name, value in given.items():
        if name not in schema._fields:
            close = difflib.get_close_matches(name, schema._fields, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise FedtwinError(f"{setting}.{name} is not a setting{hint}: allowed are {', '.join(schema._fields)}.")
        if isinstance(value, bool) and get_type_hints(schema)[name] is not bool:
            raise FedtwinError(f"{setting}.{name} = {value!r} is not allowed: it must be a number, not true or false.")
    try:
        found = _adapter(schema).validate_python({**schema._field_defaults, **given})
    except ValidationError as error:
        first = error.errors()[0]
        where, message = first["loc"][0], first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        raise FedtwinError(f"{setting}.{where} = {first['input']!r} is not allowed: it must be {message}.") from None
    for name, value in zip(schema._fields, found, strict=True):
        if type(value) is int and abs(value) > LARGEST_WHOLE:
            raise FedtwinError(f"{setting}.{name} = {value} is not allowed: it must be a whole number up to 1e12.")
    return found


def name_looked_for_in_nothing(error: BaseException) -> str | None:
    """Of code that asks for ``settings.name``, or the like, of a part that declares none: the name."""
    if isinstance(error, AttributeError) and type(error.obj) is tuple and error.obj == NO_SETTINGS:
        return str(error.name)
    return None


def _adapter(schema: Any) -> TypeAdapter[Any]:
    """NaN and infinity are no settings."""
    return TypeAdapter(schema, config=ConfigDict(allow_inf_nan=False, strict=True))
