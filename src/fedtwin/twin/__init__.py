"""The digital twin of the fleet: state, pure updates, JSON."""

from fedtwin.twin.state import DeviceTwin, Fact, Twin, new_twin, queue_at, total_queue
from fedtwin.twin.store import device_to_dict, twin_from_json, twin_to_json

__all__ = [
    "DeviceTwin",
    "Fact",
    "Twin",
    "device_to_dict",
    "new_twin",
    "queue_at",
    "total_queue",
    "twin_from_json",
    "twin_to_json",
]
