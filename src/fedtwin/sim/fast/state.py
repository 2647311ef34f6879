"""A run's arrays at the start, from its configuration."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import Config
from fedtwin.draws import Purpose, ranks, streams
from fedtwin.formulas.terms import Quantities, terms_of
from fedtwin.formulas.timeout import timeout_of
from fedtwin.policies import knobs_of, policy_of
from fedtwin.sim.fast.layout import (
    ANSWER,
    DEVICE,
    FLIGHT,
    HEARD,
    NEVER,
    NOBODY,
    NODE,
    OWN,
    PLACE,
    POINT,
    ROW,
    RUN,
    SENSOR,
    Fleet,
    Leaves,
    Records,
    Rules,
    State,
)
from fedtwin.world.fleet import FleetColumns
from fedtwin.world.parts import Parts, parts_of
from fedtwin.world.uniform_sensing import SENSING as UNIFORM

FIRST_ANSWERS = 1024


class Start(NamedTuple):
    """The state before the first dispatch, and the order of the first dispatches."""

    state: State
    rules: Rules
    order: NDArray[np.int32]


def new_start(
    config: Config,
    fleet: FleetColumns,
    tie_ranks: NDArray[np.int64],
    checkpoints: Sequence[int],
    rows: int,
    *,
    indexed: bool,
    noted: bool,
) -> Start:
    sync = config.run.mode == "sync"
    first = (
        np.zeros(0, np.int32) if sync else np.argsort(ranks(config.run.seed, Purpose.START, len(tie_ranks))).astype(np.int32)
    )
    devices, parts, knobs = _devices(fleet, tie_ranks), parts_of(config), knobs_of(config)
    terms = terms_of(config)
    own, senses = fleet.has_own(terms), parts.sensing is not UNIFORM or bool(fleet.samples_spread.any())
    run = np.zeros(1, RUN)
    run["queue_round_sum"] = len(devices)
    run["first_decliner"] = run["arrived"] = run["staleness"] = NOBODY
    run["waiting"] = True
    curve = np.zeros(len(set(checkpoints)), POINT)
    curve["round"] = sorted(set(checkpoints))
    nodes, order = new_tournament(devices) if indexed else (np.zeros(0, NODE), np.zeros(0, np.int32))
    state = State(
        run,
        Fleet(
            devices,
            _heard(len(devices)),
            _places(config, fleet, parts),
            _own(config, len(devices)),
            _terms(fleet) if own else np.zeros(0, OWN),
            _sensors(config, fleet, parts) if senses else np.zeros(0, SENSOR),
        ),
        np.zeros(0 if sync else config.fleet.channels + 1, FLIGHT),
        np.zeros(FIRST_ANSWERS if sync else 0, ANSWER),
        nodes,
        order,
        curve,
        np.zeros(rows, ROW),
    )
    rules = Rules(
        terms,
        knobs._replace(settings=tuple(knobs.settings)),
        len(devices),
        config.fleet.channels,
        config.run.rounds,
        config.compute.cpu_hz_std,
        config.compute.cpu_hz_floor,
        tuple(parts.channel_settings),
        tuple(parts.load_settings),
        tuple(parts.availability_settings),
        tuple(parts.sensing_settings),
        not sync and config.policy.feedback == "on-selection",
        indexed,
        noted,
        own,
        senses,
        timeout_of(config),
    )
    return Start(state, rules, first)


def _devices(fleet: FleetColumns, tie_ranks: NDArray[np.int64]) -> Records:
    devices = np.zeros(len(fleet.samples), DEVICE)
    devices["samples"] = fleet.samples
    devices["rank"] = tie_ranks
    devices["gain"] = devices["compute_s"] = np.nan
    devices["queue_round"] = 1
    devices["free"] = True
    return devices


def _heard(count: int) -> Records:
    heard = np.zeros(count, HEARD)
    heard["gain_at_s"] = heard["compute_at_s"] = np.nan
    return heard


def _places(config: Config, fleet: FleetColumns, parts: Parts) -> Records:
    places = np.zeros(len(fleet.samples), PLACE)
    places["path_gain"], places["cpu_hz_mean"] = fleet.path_gain, fleet.cpu_hz_mean
    for name, part in (("channel", parts.channel), ("load", parts.load), ("availability", parts.availability)):
        places[f"{name}_stream"] = streams(config.run.seed, part.purpose, len(places))
    return places


def _terms(fleet: FleetColumns) -> Records:
    terms = np.zeros(len(fleet.samples), OWN)
    for name in Quantities._fields:
        terms[name] = getattr(fleet, name)
    return terms


def _sensors(config: Config, fleet: FleetColumns, parts: Parts) -> Records:
    sensors = np.zeros(len(fleet.samples), SENSOR)
    sensors["mean"], sensors["spread"] = fleet.samples, fleet.samples_spread
    sensors["stream"] = streams(config.run.seed, parts.sensing.purpose, len(sensors))
    return sensors


def _own(config: Config, count: int) -> NDArray[np.float64]:
    """The policy's own state of every device, as it declares it."""
    state = policy_of(config).state
    return np.tile(np.array(state() if state is not None else (), np.float64), (count, 1))


def new_tournament(devices: Records) -> tuple[Records, Leaves]:
    """Leaves in the order of samples, then rank. Inner nodes are numbered 1 … leaves − 1, the root first."""
    order = np.lexsort((devices["rank"], devices["samples"])).astype(np.int32)
    devices["leaf"][order] = np.arange(len(order), dtype=np.int32)
    nodes = np.zeros(max(2, 1 << (len(order) - 1).bit_length()), NODE)
    nodes["best"], nodes["until"] = NOBODY, NEVER
    nodes["until"][0] = 0
    return nodes, order
