"""What a device finds when it is asked, what it plans, and what it learns from what it measured. No network in here."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedtwin.config import Config
from fedtwin.formulas.compute import compute_energy_j
from fedtwin.formulas.power import COMPUTE_ENERGY, COMPUTE_TIME, Plan
from fedtwin.formulas.terms import Quantities, Terms, terms_of
from fedtwin.live.device import board
from fedtwin.live.device.calibration import Calibration, cpu_hz_within
from fedtwin.live.device.emulation import EmulatedRadio, samples_of, spread_of, terms_of_device
from fedtwin.live.device.radio import Link, MeasuredRadio, Radio
from fedtwin.live.device.shipped import CodeRules
from fedtwin.live.device.trainers import Trainer
from fedtwin.live.wire.ports import Ports
from fedtwin.live.wire.protocol import Own, Reading, Source, Tried
from fedtwin.live.wire.real import CLOCK, REAL
from fedtwin.policies import power_rule

LEAST_CYCLES = 1e-3
FIRST_DOUBT_S, MOST_DOUBT_S = 3.0, 600.0
UNLIMITED = 1e30


@dataclass
class AgentOptions:
    """Who this device is and how its link is known. ``fleet_device``: be device K of the run's simulated fleet.

    ``max_power_w`` is p_n^max of the board's radio, where it is not the run's; ``calibration`` was measured before. ``code``:
    which code of the run's own it runs.
    """

    name: str
    servers: list[str]
    trainer: Trainer
    run: str = "main"
    radio: str = "measured"
    distance_m: float = 100.0
    fleet_device: int | None = None
    cpu_hz: float | None = None
    credentials: Path | None = None
    insecure: bool = False
    max_power_w: float | None = None
    ports: Ports = REAL
    calibration: Calibration | None = None
    code: CodeRules = field(default_factory=CodeRules)

    @property
    def is_board(self) -> bool:
        """Nothing of it is emulated."""
        return self.radio == "measured" and self.fleet_device is None


@dataclass(frozen=True)
class Offer:
    """What the device has agreed to: the plan it made, and what it rests on."""

    round: int
    link: Link
    cpu_hz: float
    cpu_source: Source
    plan: Plan
    samples: int


@dataclass(frozen=True)
class Computed:
    """What a training took on the run's clock, and how much longer an emulated CPU would have been at it."""

    time_s: Reading
    energy_j: Reading
    wait_s: float


class Planner:
    """The device's own model of itself. Before its first training and upload it believes what was tried out before it joined
    (``calibration``), and the configuration of what was not.

    Who declines measures nothing. So what was measured and keeps the device out is doubted after a while: it is forgotten, the
    device believes what it did at first again for one task, and what that task shows is taken whole. Kept out again it waits
    twice as long, up to ten minutes: a link that is too slow indeed costs a task now and then, an outage costs seconds. Where
    what was tried out before keeps it out, that was perhaps a busy moment: it is believed to be twice as good each time.
    """

    def __init__(
        self,
        options: AgentOptions,
        config: Config,
        samples: int,
        meter: board.EnergyMeter,
        clock: Callable[[], float] = CLOCK.monotonic_s,
        calibration: Calibration | None = None,
        time_scale: float = 1.0,
    ) -> None:
        self._options, self._compute, self._samples, self._meter = options, config.compute, samples, meter
        terms, self._spread = self._own_of(config)
        self.own = self._announced(terms_of(config), terms)
        self._tried = (calibration or Calibration()).on_the_clock(time_scale)
        cycles = self._tried.cycles_per_sample or terms.cycles_per_sample
        self._at_first = terms._replace(cycles_per_sample=cycles), self._tried.update_bits or terms.update_bits
        self._terms, self._model_bits = self._at_first
        self._trainings = 0
        self._clock, self._kept_out_since, self._doubt_after_s = clock, math.inf, FIRST_DOUBT_S
        full_power = power_rule(config) == "max"
        self.radio: Radio = MeasuredRadio(
            config,
            options.distance_m,
            full_power=full_power,
            max_power_w=terms.max_power_w,
            goodput_bps=self._tried.goodput_bps,
        )
        if options.radio == "emulated":
            self.radio = EmulatedRadio(
                config,
                options.name,
                fleet_device=options.fleet_device,
                distance_m=options.distance_m,
                full_power=full_power,
            )

    def _own_of(self, config: Config) -> tuple[Terms, float]:
        """The device's terms, and the spread of its samples; who trains on another number than its model does not sense."""
        device = self._options.fleet_device
        if device is None:
            terms, power_w = terms_of(config), self._options.max_power_w
            return (terms if power_w is None else terms._replace(max_power_w=power_w)), 0.0
        senses = samples_of(config, device) == self._samples
        return terms_of_device(config, device), spread_of(config, device) if senses else 0.0

    def _announced(self, configured: Terms, own: Terms) -> Own | None:
        """What is not as configured, for the hello; None where everything is."""
        found = {name: getattr(own, name) for name in Quantities._fields if getattr(own, name) != getattr(configured, name)}
        if self._spread > 0.0:
            found["samples_spread"] = self._spread
        return Own(**found) if found else None

    @property
    def measured(self) -> Tried | None:
        """Of a board, for the hello: what was tried out, and what an update would take by it."""
        if not self._options.is_board:
            return None
        if self._tried.cycles_per_sample is None:
            return self._tried
        need = self.at_full_power(self._look(0, 0.0))
        time_s, energy_j = need.compute_s + need.upload_s, need.compute_j + need.upload_j
        return self._tried.model_copy(update={"time_s": time_s, "energy_j": energy_j})

    def at_full_power(self, offer: Offer) -> Plan:
        """What the update would take, whatever the limits."""
        link, terms = offer.link, self._terms._replace(max_time_s=UNLIMITED, max_energy_j=UNLIMITED)
        return self.radio.at_full_power(terms, link, offer.cpu_hz, offer.samples, self._model_bits)

    def keep_to(self, limits: dict[str, float]) -> None:
        """The limits, and the weight of energy, that hold from now on, where they are not those of the settings."""
        self._terms = self._terms._replace(**limits)
        self._at_first = self._at_first[0]._replace(**limits), self._at_first[1]

    def resize(self, samples: int) -> None:
        """D_n from here on."""
        self._samples = samples

    def look(self, round_: int, clock_s: float = 0.0) -> Offer:
        """Link, CPU, and the power of least cost within the limits (Section IV-B)."""
        offer = self._look(round_, clock_s)
        if offer.plan.feasible:
            self._kept_out_since = math.inf
            if self._trainings > 0:
                self._doubt_after_s = FIRST_DOUBT_S
        elif self._rests_on_measurements(offer.plan.reason):
            self._kept_out_since = min(self._kept_out_since, self._clock())
            if self._clock() - self._kept_out_since >= self._doubt_after_s:
                self._forget()
                return self._look(round_, clock_s)
        return offer

    def _rests_on_measurements(self, reason: int) -> bool:
        if self._trainings == 0:
            return self._tried.cycles_per_sample is not None
        return self.radio.learned or reason in (COMPUTE_TIME, COMPUTE_ENERGY)

    def _forget(self) -> None:
        if self._trainings == 0:
            terms, bits = self._at_first
            self._at_first = terms._replace(cycles_per_sample=0.5 * terms.cycles_per_sample), bits
            self.radio.doubt()
        self._terms, self._model_bits = self._at_first
        self._trainings = 0
        self.radio.forget()
        self._kept_out_since, self._doubt_after_s = math.inf, min(2.0 * self._doubt_after_s, MOST_DOUBT_S)

    def _look(self, round_: int, clock_s: float) -> Offer:
        link = self.radio.look(round_, clock_s)
        cpu_hz, source = self._cpu(link)
        samples = self._samples if self._spread == 0.0 or link.samples is None else link.samples
        plan = self.radio.plan(self._terms, link, cpu_hz, samples, self._model_bits)
        return Offer(round_, link, cpu_hz, source, plan, samples)

    def _cpu(self, link: Link) -> tuple[float, Source]:
        """As emulated, as given, as the system tells, or as configured; always within what the server takes."""
        if link.cpu_hz is not None:
            return link.cpu_hz, "modelled"
        if self._options.cpu_hz is not None:
            return self._options.cpu_hz, "modelled"
        measured = board.cpu_hz()
        return cpu_hz_within(self._compute, measured), "modelled" if measured is None else "measured"

    def computed(self, offer: Offer, measured_s: float, joules: list[int] | None) -> Computed:
        """An emulated CPU takes the time of its model, or longer where the real one did; a real one teaches us its cycles."""
        if offer.link.cpu_hz is not None:
            return self._emulated(offer, measured_s)
        cycles = max(measured_s * offer.cpu_hz / offer.samples, LEAST_CYCLES)
        learned = cycles if self._trainings == 0 else 0.5 * (cycles + self._terms.cycles_per_sample)
        self._terms = self._terms._replace(cycles_per_sample=learned)
        self._trainings += 1
        spent_j = self._meter.joules_since(joules) if joules is not None else 0.0
        energy_j = Reading(value=spent_j, source="measured")
        if spent_j <= 0.0:
            exact = self._terms._replace(cycles_per_sample=cycles)
            energy_j = Reading(value=compute_energy_j(exact, offer.cpu_hz, offer.samples), source="modelled")
        return Computed(Reading(value=measured_s, source="measured"), energy_j, 0.0)

    def _emulated(self, offer: Offer, measured_s: float) -> Computed:
        plan = offer.plan
        if measured_s <= plan.compute_s:
            time_s, energy_j = (Reading(value=value, source="modelled") for value in (plan.compute_s, plan.compute_j))
            return Computed(time_s, energy_j, plan.compute_s - measured_s)
        energy_j = Reading(value=self._terms.capacitance * offer.cpu_hz**3 * measured_s, source="modelled")
        return Computed(Reading(value=measured_s, source="measured"), energy_j, 0.0)

    def uploaded(self, size_bytes: int, link_s: float) -> None:
        """The real link carried so much in so long, on the run's clock: predictions are on it too."""
        self._model_bits = 8.0 * size_bytes
        self.radio.learn(self._model_bits, link_s)
