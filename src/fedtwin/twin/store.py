"""The twin as JSON, in and out."""

import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.twin.state import DeviceTwin, Fact, Twin

SCHEMA_VERSION = 1
_TWIN = TypeAdapter(Twin)


def device_to_dict(device: DeviceTwin) -> dict[str, Any]:
    """One device, every field of it; a fact is a dictionary of its own. This is how a twin is shown wherever it is shown."""
    return {key: value._asdict() if isinstance(value, Fact) else value for key, value in device._asdict().items()}


def twin_to_json(twin: Twin) -> str:
    """The whole twin; floats are written so that reading gives the same bits."""
    devices = [device_to_dict(device) for device in twin.devices]
    return json.dumps({"schema_version": SCHEMA_VERSION, **twin._asdict(), "devices": devices}, allow_nan=False)


def twin_from_json(text: str) -> Twin:
    """The twin that was written, or one sentence about why the text is none."""
    try:
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.pop("schema_version", None) != SCHEMA_VERSION:
            raise FedtwinError(f"The twin's schema_version is not {SCHEMA_VERSION}, the one this version reads.")
        return _TWIN.validate_python(data)
    except json.JSONDecodeError as error:
        raise FedtwinError(f"The twin is not valid JSON: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FedtwinError(f"The twin's {place} = {first['input']!r} is not allowed: {first['msg']}.") from None
