"""Prometheus metrics of the edge server."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import REASONS
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import Event
from fedtwin.live.views.health import Health
from fedtwin.live.wire.addresses import check_free, host_and_port
from fedtwin.live.wire.answering import start_server
from fedtwin.live.wire.ports import Clock
from fedtwin.live.wire.real import CLOCK
from fedtwin.twin import total_queue

DECLINES = (*REASONS, "busy", "no answer", "not connected", "slow", "offer", "quarantined", "refused", "no task")
STATES = ("idle", "in-flight", "offline", "quarantined")
TASK_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


def check_metrics(address: str) -> None:
    """Whether metrics can be served there, before anything is made."""
    try:
        check_free(*_host_and_port(address))
    except (OSError, ValueError, OverflowError) as error:
        raise _unfit(address, error) from None


def _host_and_port(address: str) -> tuple[str, int]:
    host, port = host_and_port(address)
    return host or "127.0.0.1", port


def _unfit(address: str, error: Exception) -> FedtwinError:
    return FedtwinError(f"--metrics {address!r} cannot be served: it must be HOST:PORT and free ({error}).")


class Metrics:
    """Counts events as they happen; gauges are read from the core when they are set."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self.registry = CollectorRegistry()
        self.health = Health(clock)
        self._applied = self._counter("uploads_applied", "Uploads mixed into the model")
        self._late = self._counter("uploads_late", "Of these, uploads whose task had been given up")
        self._disbelieved = self._counter("times_disbelieved", "Reported times replaced by the server's clock")
        self._refused = self._counter("refusals", "Messages refused", ["reason"])
        self._given_up = self._counter("tasks_given_up", "Tasks that came to nothing")
        self._dispatched = self._counter("tasks_dispatched", "Tasks handed out")
        self._declined = self._counter("declines", "Rounds declined, by reason", ["reason"])
        self._quarantined = self._counter("quarantines", "Devices put in quarantine")
        self._clipped = self._counter("uploads_clipped", "Uploads refused because their device has more than its share")
        self._energy = self._counter("energy_joules", "Energy of all updates mixed in")
        self._task_s = Histogram(
            "fedtwin_task_seconds", "From task to upload, by the server's clock", buckets=TASK_BUCKETS_S, registry=self.registry
        )
        self._devices = self._gauge("devices", "Devices by status", ["status"])
        self._backed_off = self._gauge("devices_backed_off", "Devices that are heard, and wait because tasks came to nothing")
        self._cut = self._gauge("devices_cut", "Names that are cut off or revoked because they flooded the broker")
        self._round = self._gauge("round", "Rounds begun")
        self._version = self._gauge("model_version", "Version of the model")
        self._queue = self._gauge("total_queue", "Sum of the virtual queues")
        self._accuracy = self._gauge("test_accuracy", "Accuracy of the model on the test set")
        self._metric = self._gauge("test_metric", "Metric of the run's task (learning.metric) on the test set")
        self._connected = self._gauge("broker_connected", "1 while the broker is reached")
        self._path_ok = self._gauge("data_path_ok", "1 while the broker stores and delivers")
        self._repairs = self._counter("data_path_repairs", "What was made again or started again", ["what"])

        self._standstill_s = self._gauge("standstill_seconds", "Without an upload mixed in, as last warned of; 0 with the next")
        self._standstill = self._gauge("standstill_reasons", "What came to nothing meanwhile, by reason", ["reason"])

    def serve(self, address: str) -> int:
        """Answers at http://HOST:PORT/metrics, /healthz and /readyz; returns the port."""
        try:
            host, port = _host_and_port(address)
            asked = {"/healthz": self.health.lives, "/readyz": self.health.is_ready}
            return start_server(host, port, self.registry, asked)
        except (OSError, ValueError, OverflowError) as error:
            raise _unfit(address, error) from None

    def happened(self, event: Event, time_scale: float) -> None:
        match event:
            case events.Applied():
                self._applied.inc()
                self._late.inc(event.late)
                self._disbelieved.inc(not event.believed)
                self._energy.inc(event.compute_j + event.upload_j)
                self._task_s.observe(event.elapsed_s * time_scale)
            case events.Refused():
                kind = event.reason.partition(":")[0]
                self._refused.labels(kind).inc()
                self._clipped.inc(kind == "share")
            case events.GivenUp():
                self._given_up.inc()
            case events.Dispatched():
                self._dispatched.inc()
            case events.Declined():
                first = event.reason.partition(":")[0]
                self._declined.labels(first if first in DECLINES else "other").inc()
            case events.Quarantined():
                self._quarantined.inc()
            case events.Measured():
                if event.test_accuracy is not None:
                    self._accuracy.set(event.test_accuracy)
                if event.test_metric is not None:
                    self._metric.set(event.test_metric)
            case _:
                pass

    def stands_still(self, seconds: float, reasons: Mapping[str, int]) -> None:
        """Reasons are told by their first words, which are ours: a device's own would be labels without end."""
        self._standstill_s.set(seconds)
        self._standstill.clear()
        for reason, count in reasons.items():
            kind, first = (*reason.split(": "), "")[:2]
            known = kind != "declined" or first in DECLINES
            self._standstill.labels(f"{kind}: {first if known else 'other'}".removesuffix(": ")).inc(count)

    def moves(self) -> None:
        self._standstill_s.set(0)
        self._standstill.clear()

    def repaired(self, what: str) -> None:
        self._repairs.labels(what).inc()

    def resumed(self, core: Core) -> None:
        """What has happened before this process was started, where it must not be forgotten."""
        self._quarantined.inc(core.quarantines)

    def left_out(self, *, backed_off: int, cut: int) -> None:
        self._backed_off.set(backed_off)
        self._cut.set(cut)

    def look(self, core: Core, *, connected: bool, path_ok: bool) -> None:
        """Sets the gauges."""
        self.health.looked(connected=connected, path_ok=path_ok)
        self._connected.set(connected)
        self._path_ok.set(path_ok)
        if not core.started:
            return
        statuses: list[str] = [device.status for device in core.twin.devices]
        for state in STATES:
            self._devices.labels(state).set(statuses.count(state))
        self._round.set(core.round)
        self._version.set(core.version)
        self._queue.set(total_queue(core.twin, core.queue_round))

    def _counter(self, name: str, what: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"fedtwin_{name}", what, labels or [], registry=self.registry)

    def _gauge(self, name: str, what: str, labels: list[str] | None = None) -> Gauge:
        return Gauge(f"fedtwin_{name}", what, labels or [], registry=self.registry)
