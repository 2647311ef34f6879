"""Devices and edge server as things in the shape of Eclipse Ditto's."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedtwin.runs import Run
from fedtwin.service.edge_thing import edge_features
from fedtwin.service.moments import Seen, seen
from fedtwin.service.names import EDGE
from fedtwin.service.properties import BY_PATH, FEATURES, PROPERTIES, shown
from fedtwin.service.served import Served
from fedtwin.service.telling import UnansweredError, numbers
from fedtwin.service.twins import Twins

OWN = ("distance_m", "max_power_w", "cycles_per_sample", "update_bits", "max_time_s", "max_energy_j", "samples_spread")
POLICY = "fedtwin:run"
"""Who may read or steer is a matter of tokens; Ditto's things name a policy, so there is a name."""


@dataclass(frozen=True)
class Fleet:
    """All things of one run at one moment; ``device`` is −1 for the edge server."""

    served: Served
    seen: Seen
    own: dict[str, list[Any]]

    @property
    def ids(self) -> list[str]:
        return [f"{self.served.id}:{name}" for name in (*self.seen.names, EDGE)]

    @property
    def devices(self) -> list[int]:
        return [*range(len(self.seen.names)), -1]

    def column(self, path: str) -> list[Any]:
        """The value at a path of every thing, the edge server's last; null where a thing has no such."""
        path = path.removesuffix("/value")
        if path == "thingId":
            return self.ids
        path = "revision" if path == "_revision" else path
        found = value_at(self._edge, path)
        return [*self._of_devices(path), found["value"] if isinstance(found, dict) and "value" in found else found]

    def _of_devices(self, path: str) -> list[Any]:
        """Without building every thing: what is not looked for here is the same in all of them."""
        names, seen = self.seen.names, self.seen
        if path in BY_PATH:
            return [BY_PATH[path].known(seen, device).value for device in range(len(names))]
        head, _, part = path.rpartition("/")
        if head in BY_PATH and part in ("time_s", "age_s", "provenance"):
            known, now_s = BY_PATH[head].known, seen.now_s
            return [shown(known(seen, device), now_s)[part] for device in range(len(names))]
        own: dict[str, list[Any]] = {"device": list(range(len(names))), "name": names, **self.own}
        if head == "attributes" and part in own:
            return own[part][: len(names)]
        return [value_at(self.thing(0), path)] * len(names) if names else []

    @cached_property
    def _edge(self) -> dict[str, Any]:
        return self.thing(-1)

    def thing(self, device: int) -> dict[str, Any]:
        moment = self.seen.moment
        head = {
            "thingId": f"{self.served.id}:{self.seen.names[device] if device >= 0 else EDGE}",
            "policyId": POLICY,
            "revision": moment.revision,
            "modified": moment.seconds,
        }
        if device < 0:
            with self.served.reading() as run:
                return {
                    **head,
                    "attributes": _of_the_run(self.served, run, len(self.seen.names)),
                    "features": edge_features(self.served, run, self.seen),
                }
        features: dict[str, dict[str, Any]] = {feature: {"properties": {}} for feature in FEATURES}
        for one in PROPERTIES:
            features[one.feature]["properties"][one.name] = shown(one.known(self.seen, device), self.seen.now_s)
        own = {name: column[device] for name, column in self.own.items()}
        attributes = {"run": self.served.id, "kind": "device", "device": device, "name": self.seen.names[device], **own}
        return {**head, "attributes": attributes, "features": features}


def value_at(document: Any, path: str) -> Any:
    for part in path.strip("/").split("/"):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    return document


def fleet_of(served: Served, at: str = "latest") -> Fleet | None:
    """None of a live run that has not started: it has no things yet."""
    found = served.remembered("seen", lambda _: seen(served)) if at == "latest" else seen(served, at)
    if found is None:
        return None
    return Fleet(served, found, served.remembered(f"own of {len(served.names())}", _own, lasting=True))


def split(twins: Twins, thing_id: str) -> tuple[Served, str]:
    run, colon, name = thing_id.partition(":")
    if not colon or run not in twins.runs:
        raise UnansweredError(
            404, f"There is no thing {thing_id[:100]!r}: a thing is RUN:NAME, and the runs are {', '.join(twins.runs)}."
        )
    return twins.runs[run], name


def find_thing(twins: Twins, thing_id: str, at: str) -> tuple[Fleet, int]:
    """The fleet it belongs to, and its number there."""
    served, name = split(twins, thing_id)
    fleet = fleet_of(served, at)
    names: Sequence[str] = [] if fleet is None else fleet.seen.names
    if fleet is not None and (name == EDGE or name in names):
        return fleet, -1 if name == EDGE else names.index(name)
    raise UnansweredError(404, f"There is no thing {thing_id[:100]!r}{'' if at == 'latest' else f' at {at}'}.")


def _own(run: Run) -> dict[str, list[Any]]:
    return {name: numbers(run.devices[name].to_pylist()) for name in OWN}


def _of_the_run(served: Served, run: Run, devices: int) -> dict[str, Any]:
    config = run.config
    found = {"run": served.id, "kind": "edge", "policy": config.policy.name, "mode": config.run.mode, "seed": config.run.seed}
    return {**found, "devices": devices, "finished": run.finished}
