"""The link of a device, and the real one as it is measured."""

import math
from typing import NamedTuple, Protocol

from fedtwin.config import Config
from fedtwin.formulas.power import Plan, full_power_plan, optimal_plan
from fedtwin.formulas.rate import path_gain
from fedtwin.formulas.terms import Terms
from fedtwin.live.wire.protocol import Source

SMOOTHING = 0.5
LEAST_GAIN, MOST_GAIN = 1e-30, 1.0


class Link(NamedTuple):
    """What a device finds when it looks: its gain; where these are emulated too, its CPU, whether it is there, and D_n(t)."""

    gain: float
    gain_source: Source
    cpu_hz: float | None
    available: bool = True
    samples: int | None = None


class Radio(Protocol):
    """``look`` at the link in a round, ``plan`` the power, wait for what the air would take, ``learn`` from an upload."""

    def look(self, round_: int, clock_s: float = 0.0) -> Link: ...

    def plan(self, terms: Terms, link: Link, cpu_hz: float, samples: int, model_bits: float) -> Plan: ...

    def at_full_power(self, terms: Terms, link: Link, cpu_hz: float, samples: int, model_bits: float) -> Plan:
        """With no look at the limits."""

    def air_s(self, plan: Plan) -> float:
        """Seconds of the run's clock the air takes besides the real link."""

    def learn(self, bits: float, seconds: float) -> None: ...

    @property
    def learned(self) -> bool:
        """Whether what it says rests on uploads."""

    def forget(self) -> None: ...

    def doubt(self) -> None:
        """What was tried out is perhaps twice as good."""


class MeasuredRadio:
    """The goodput of the real link, at first as it was tried out. The gain is the one that would give it at full power, and the
    planned power is advice.
    """

    def __init__(
        self,
        config: Config,
        distance_m: float,
        *,
        full_power: bool,
        max_power_w: float | None = None,
        goodput_bps: float | None = None,
    ) -> None:
        self._plan = full_power_plan if full_power else optimal_plan
        self._radio, self._max_power_w = config.radio, max_power_w or config.radio.max_power_w
        self._noise_w = 10.0 ** ((config.radio.noise_dbm - 30.0) / 10.0)
        self._assumed = path_gain(distance_m)
        self._tried_bps = self.goodput_bps = goodput_bps
        self._uploads = 0

    def look(self, round_: int, clock_s: float = 0.0) -> Link:  # noqa: ARG002
        if self.goodput_bps is None:
            return Link(min(self._assumed, MOST_GAIN), "modelled", None)
        nats = min(self.goodput_bps / self._radio.bandwidth_hz * math.log(2.0), 600.0)
        gain = math.expm1(nats) * self._noise_w / self._max_power_w
        return Link(min(max(gain, LEAST_GAIN), MOST_GAIN), "measured", None)

    def plan(self, terms: Terms, link: Link, cpu_hz: float, samples: int, model_bits: float) -> Plan:
        plan = self._plan(terms._replace(update_bits=model_bits), link.gain, cpu_hz, samples)
        return self._as_the_link_is(plan, model_bits)

    def at_full_power(self, terms: Terms, link: Link, cpu_hz: float, samples: int, model_bits: float) -> Plan:
        plan = full_power_plan(terms._replace(update_bits=model_bits), link.gain, cpu_hz, samples)
        return self._as_the_link_is(plan, model_bits)

    def _as_the_link_is(self, plan: Plan, model_bits: float) -> Plan:
        if self.goodput_bps is None or not plan.feasible:
            return plan
        upload_s = model_bits / self.goodput_bps
        return plan._replace(upload_s=upload_s, upload_j=plan.power_w * upload_s)

    def air_s(self, plan: Plan) -> float:  # noqa: ARG002
        return 0.0

    def learn(self, bits: float, seconds: float) -> None:
        measured = bits / max(seconds, 1e-6)
        old = self.goodput_bps if self._uploads else None
        self.goodput_bps = measured if old is None else SMOOTHING * measured + (1.0 - SMOOTHING) * old
        self._uploads += 1

    @property
    def learned(self) -> bool:
        return self._uploads > 0

    def forget(self) -> None:
        self.goodput_bps, self._uploads = self._tried_bps, 0

    def doubt(self) -> None:
        self._tried_bps = None if self._tried_bps is None else 2.0 * self._tried_bps
