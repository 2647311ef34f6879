"""The digital twin of the fleet: state, pure updates, JSON."""

from fedtwin.twin.state import DeviceTwin, Fact, Twin, new_twin, queue_at, total_queue
from fedtwin.twin.store import twin_from_json, twin_to_json

__all__ = ["DeviceTwin", "Fact", "Twin", "new_twin", "queue_at", "total_queue", "twin_from_json", "twin_to_json"]
