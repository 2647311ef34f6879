"""Prometheus series of single devices: of the first so many that joined, so that their number stays bounded."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fedtwin.live.run.core import Core
from fedtwin.live.views.sight import Sight
from fedtwin.live.views.status import STATES, device_rows

MOST_DEVICES = 50
SERIES = {
    "queue": ("Virtual queue of the device", "queue"),
    "mean_cost": ("Mean cost of the device's updates", "mean_cost"),
    "last_upload_age_seconds": ("Since the device's last upload was mixed in", "last_upload_age_s"),
    "known_age_seconds": ("Since the newest that is known of the device's link and CPU", "known_age_s"),
}


class DeviceSeries(Collector):
    """Read from the core when somebody asks for the metrics: nothing is kept up to date in between."""

    def __init__(self, core: Core, sight: Sight, now_s: Callable[[], float], most: int) -> None:
        self._core, self._sight, self._now_s, self._most = core, sight, now_s, most

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield from self._families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        state, *others, unshown = self._families()
        now_s = self._now_s()
        if self._core.started and self._most:
            names = self._core.names[: self._most]
            facts = {name: self._sight.device(number, now_s) for number, name in enumerate(names)}
            core = self._core
            for row in device_rows(facts, core.queue_round, core.twin.min_mean_samples, now_s, core.live.time_scale):
                for one in STATES:
                    state.add_metric([row["name"], one], float(row["state"] == one))
                for family, (_, key) in zip(others, SERIES.values(), strict=True):
                    if row[key] is not None:
                        family.add_metric([row["name"]], row[key])
        unshown.add_metric([], max(len(self._core.names) - self._most, 0))
        yield from (state, *others, unshown)

    def _families(self) -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily("fedtwin_device_state", "1 for the state that the device is in", labels=["device", "state"]),
            *(GaugeMetricFamily(f"fedtwin_device_{name}", what, labels=["device"]) for name, (what, _) in SERIES.items()),
            GaugeMetricFamily("fedtwin_devices_without_series", "Devices beyond --metrics-devices", labels=[]),
        ]
