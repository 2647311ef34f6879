"""Many futures by the compiled engine: the arrays of a fork are laid out once, and copied for every world."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fedtwin.draws import streams
from fedtwin.policies import policy_of
from fedtwin.sim.fast.compile import Exchanged, compiled_for, exchanged_in, is_users, looks_at_little
from fedtwin.sim.fast.layout import FLIGHT, Fleet, Records, Rules, State
from fedtwin.sim.fast.run import INDEX_FROM
from fedtwin.sim.fast.state import new_start, new_tournament
from fedtwin.twin import DeviceTwin
from fedtwin.whatif.answer import Played
from fedtwin.whatif.fork import Fork
from fedtwin.whatif.kernels import asynchronous_future, synchronous_future
from fedtwin.whatif.points import Points, played
from fedtwin.whatif.worlds import OneWorld, in_world
from fedtwin.world.parts import Parts

_made: dict[tuple[Any, ...], Any] = {}


def play_compiled(fork: Fork, worlds: Iterable[OneWorld], points: Points) -> Iterator[Played]:
    """The same as ``play_readable`` in each of them, to the last bit."""
    layout: Layout | None = None
    for one in worlds:
        if layout is None:
            layout = Layout(fork, one)
        yield layout.play(in_world(fork, one), one, points)


class Layout:
    """The fork as arrays. Worlds differ in places, streams, samples of new devices, and a few numbers of the rules."""

    def __init__(self, fork: Fork, first: OneWorld) -> None:
        policy, self._exchanged = policy_of(fork.config), exchanged_in(first.config)
        self._kernel = kernel_for(self._exchanged)
        self._indexed = fork.devices >= INDEX_FROM and policy.lead is not None
        ranks, noted = np.array(fork.ranks), not looks_at_little(policy)
        start = new_start(first.config, first.fleet, ranks, (), 0, indexed=self._indexed, noted=noted)
        self._state, self._rules = start.state, start.rules
        _lay_out_run(start.state.run, fork, indexed=self._indexed)
        for device, known in enumerate(fork.twin.devices):
            _lay_out_device(start.state.fleet, device, known)
        flights = np.zeros(max(len(fork.flights), fork.config.fleet.channels) + 1, FLIGHT)
        _lay_out_flights(flights, start.state.fleet.heard, fork)
        if fork.states is not None and policy.state is not None:
            start.state.fleet.own[:] = np.array([tuple(state) for state in fork.states])
        answers = np.zeros(fork.devices + 1 if fork.sync else 0, start.state.answers.dtype)
        self._state = start.state._replace(flights=flights if not fork.sync else start.state.flights, answers=answers)

    def play(self, fork: Fork, one: OneWorld, points: Points) -> Played:
        state, rules = self._state_in(fork, one), self._rules_in(one)
        noted = np.zeros((len(points), 4))
        most = fork.config.fleet.channels - (not fork.waiting)
        self._kernel(state, rules, points, np.array(fork.lost, np.int64), most, noted)
        run = state.run[0]
        trained = state.fleet.heard["trained"]
        return played(fork, noted, float(run["time_sum_s"]), float(run["energy_sum_j"]), trained, int(run["round"]))

    def _state_in(self, fork: Fork, one: OneWorld) -> State:
        known, old = self._state, self._state.fleet
        devices, places, sensors, terms = old.devices.copy(), old.places.copy(), old.sensors.copy(), old.terms.copy()
        for k in range(fork.devices - fork.added, fork.devices):
            devices["samples"][k] = fork.twin.devices[k].samples.value
        places["path_gain"], places["cpu_hz_mean"] = one.fleet.path_gain, one.fleet.cpu_hz_mean
        parts: Parts = self._exchanged.parts
        for name, part in (("channel", parts.channel), ("load", parts.load), ("availability", parts.availability)):
            places[f"{name}_stream"] = streams(one.seed, part.purpose, len(places))
        if len(sensors):
            sensors["mean"], sensors["spread"] = one.fleet.samples, one.fleet.samples_spread
            sensors["stream"] = streams(one.seed, parts.sensing.purpose, len(sensors))
        for name in terms.dtype.names or () if len(terms) else ():
            terms[name] = getattr(one.fleet, name)
        nodes, order = new_tournament(devices) if self._indexed else (known.nodes, known.order)
        fleet = Fleet(devices, old.heard.copy(), places, old.own.copy(), terms, sensors)
        copies = known.run.copy(), fleet, known.flights.copy(), known.answers.copy(), nodes, order, known.curve, known.rows
        return State(*copies)

    def _rules_in(self, one: OneWorld) -> Rules:
        if one.sampled is None:
            return self._rules
        return self._rules._replace(
            std_hz=one.config.compute.cpu_hz_std,
            floor_hz=one.config.compute.cpu_hz_floor,
            channel_settings=(one.sampled.shape,),
            availability_settings=(one.sampled.silence,) if one.sampled.silence > 0.0 else (),
        )


def kernel_for(exchanged: Exchanged) -> Any:
    """Compiled once in a process where all of it is fedtwin's own, and kept on disk for the next."""
    if is_made(exchanged):
        return _made[_key(exchanged)]
    future = synchronous_future if exchanged.mode == "sync" else asynchronous_future
    called = f"what-if for {exchanged.names['policy.name']} ({exchanged.mode})"
    made = compiled_for(exchanged, future, f"whatif-{exchanged.mode}", called)
    if not is_users(exchanged):
        _made[_key(exchanged)] = made
    return made


def is_made(exchanged: Exchanged) -> bool:
    """Whether nothing has to be compiled or loaded any more."""
    return _key(exchanged) in _made


def _key(exchanged: Exchanged) -> tuple[Any, ...]:
    return (exchanged.mode, exchanged.power, exchanged.gain, *exchanged.names.values())


def _lay_out_run(run: Records, fork: Fork, *, indexed: bool) -> None:
    run["round"], run["clock_s"], run["waiting"] = fork.round, fork.clock_s, fork.waiting
    run["version"], run["flights"] = fork.twin.model_version, len(fork.flights)
    run["queue_sum"], run["queue_round_sum"] = fork.twin.queue_sum, fork.twin.queue_round_sum
    run["selections"] = fork.selections
    run["scanning"] = indexed  # so that the tournament is built before the first round


def _lay_out_device(fleet: Fleet, device: int, known: DeviceTwin) -> None:
    own, heard = fleet.devices[device], fleet.heard[device]
    own["samples"], own["free"] = known.samples.value, known.status == "idle"
    for name in ("cost_sum", "queue", "queue_round", "selections", "observations"):
        own[name] = getattr(known, name)
    if known.gain is not None:
        own["gain"], heard["gain_at_s"] = known.gain.value, known.gain.learned_s
    if known.compute_s is not None:
        own["compute_s"], heard["compute_at_s"] = known.compute_s.value, known.compute_s.learned_s
    heard["gain_sum"], heard["gains"], heard["cpu_hz_sum"] = known.gain_sum, known.gains, known.cpu_hz_sum
    heard["version"] = known.model_version or 0


def _lay_out_flights(flights: Records, heard: Records, fork: Fork) -> None:
    """In the order of their arrival, which is one of a heap."""
    for place, flight in enumerate(fork.flights):
        entry, known = flights[place], fork.twin.devices[flight.device]
        entry["at_s"], entry["device"], entry["cost"] = flight.at_s, flight.device, flight.cost
        entry["version"], entry["counted"] = known.model_version or 0, known.counted
        heard[flight.device]["task_s"], heard[flight.device]["task_j"] = flight.time_s, flight.energy_j
