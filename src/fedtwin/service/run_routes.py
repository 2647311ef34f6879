"""The routes of runs."""

import math
from typing import Any

from fedtwin.runs import Run
from fedtwin.service.curves import curves
from fedtwin.service.decision import decision
from fedtwin.service.events import of_run
from fedtwin.service.fidelity import ages_of, fidelity, trusted_of
from fedtwin.service.fleet import fleet
from fedtwin.service.moments import AT, seen
from fedtwin.service.overview import described, listed
from fedtwin.service.parameters import Parameter
from fedtwin.service.places import places
from fedtwin.service.refusals import refusals
from fedtwin.service.routes import Asked, Route
from fedtwin.service.served import Served
from fedtwin.service.tasks import longest_s, tasks
from fedtwin.service.twins import Twins

AT_ = Parameter("at", "string", "latest, revision:K, round:T or seconds:S", "latest", pattern=AT, example="round:20")
FROM = Parameter("from_s", "number", "first second, of the run's clock", within=(0.0, 1e15))
TO = Parameter("to_s", "number", "last second", within=(0.0, 1e15))


def _limit(default: int) -> Parameter:
    return Parameter("limit", "integer", "at most so many", default, within=(1, 10_000))


def _runs(twins: Twins, asked: Asked) -> Any:
    return {
        "runs": [listed(served) for served in twins.runs.values()],
        "role": asked.role,
        "by_token": twins.access.tokens is not None,
    }


def _run(twins: Twins, asked: Asked) -> Any:
    return described(twins.run(asked.path["run"]))


def _fleet(twins: Twins, asked: Asked) -> Any:
    served = twins.run(asked.path["run"])
    judged = served.lately("fidelity", lambda run: _judged(served, run))
    return fleet(seen(served, asked.query["at"]), trusted_of(judged) if judged is not None else ())


def _judged(served: Served, run: Run) -> dict[str, Any]:
    return fidelity(run, served.names())


def _fidelity(twins: Twins, asked: Asked) -> Any:
    served = twins.run(asked.path["run"])
    report = served.made_of_tables("fidelity", lambda run: _judged(served, run))
    return {**report, "ages": ages_of(fleet(seen(served), ())["columns"])}


def _places(twins: Twins, asked: Asked) -> Any:
    return twins.run(asked.path["run"]).remembered("places", places)


def _curves(twins: Twins, asked: Asked) -> Any:
    query = asked.query
    key = query["points"], query["from_s"], query["to_s"]
    return twins.run(asked.path["run"]).made_of_tables(("curves", *key), lambda run: curves(run, *key))


def _tasks(twins: Twins, asked: Asked) -> Any:
    served, query = twins.run(asked.path["run"]), asked.query
    last = served.latest()
    end_s = last.seconds if last is not None else 0.0
    from_s = query["from_s"] or 0.0
    to_s = math.inf if query["to_s"] is None else query["to_s"]
    key = "tasks", from_s, to_s, query["limit"]
    with served.reading() as run:
        back_s = 0.0 if run.is_live else served.remembered("longest", longest_s)
    return served.made_of_tables(key, lambda run: tasks(run, served.names(), end_s, back_s, from_s, to_s, query["limit"]))


def _refusals(twins: Twins, asked: Asked) -> Any:
    served = twins.run(asked.path["run"])
    with served.reading():
        return refusals(served, asked.query["limit"])


def _decision(twins: Twins, asked: Asked) -> Any:
    query = asked.query
    return decision(twins.run(asked.path["run"]), query["round"], query["device"], trust=twins.trust)


def _events(twins: Twins, asked: Asked) -> Any:
    return of_run(twins.run(asked.path["run"]), asked.headers.get("last-event-id"))


ROUND = Parameter("round", "integer", "which round, from 1", required=True, within=(1, 10**12), example=20)
DEVICE = Parameter("device", "string", "a device to compare with, by number, or by name", pattern="[A-Za-z0-9_-]{1,64}")
POINTS = Parameter("points", "integer", "at most so many points", 600, within=(1, 5000))

ROUTES = (
    Route("GET", "/api/runs", "All runs", _runs, gives="runs"),
    Route("GET", "/api/runs/{run}", "One run, with summary and settings", _run),
    Route("GET", "/api/runs/{run}/fleet", "The fleet at a moment, one array per field", _fleet, (AT_,)),
    Route("GET", "/api/runs/{run}/places", "Where the devices are", _places),
    Route(
        "GET",
        "/api/runs/{run}/curves",
        "How it went: the running mean cost, and means over parts",
        _curves,
        (POINTS, FROM, TO),
    ),
    Route("GET", "/api/runs/{run}/tasks", "What devices were given to do", _tasks, (FROM, TO, _limit(2000))),
    Route("GET", "/api/runs/{run}/refusals", "What was refused, and who is in quarantine", _refusals, (_limit(200),)),
    Route("GET", "/api/runs/{run}/decision", "Why a device was chosen, or was not", _decision, (ROUND, DEVICE)),
    Route("GET", "/api/runs/{run}/fidelity", "What the twin predicted against what happened", _fidelity),
    Route(
        "GET",
        "/api/runs/{run}/events",
        "What happens, as server-sent events",
        _events,
        media_types=("text/event-stream",),
    ),
)
