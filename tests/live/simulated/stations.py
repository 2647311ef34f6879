"""The lives of a simulated edge server: it begins the run, goes on with it, or stands by, as ``server/hosting.py`` does."""

import asyncio

from fedtwin.live.run import opening
from fedtwin.live.run.past import has_ledger
from fedtwin.live.server.edge import EdgeOptions, EdgeServer
from fedtwin.live.server.handover import Handover
from fedtwin.live.server.place import Place
from fedtwin.live.server.standby import LOOK_S
from fedtwin.records.files import LOCK_NAME
from fedtwin.records.lock import Lock, is_held
from tests.live.simulated.life import Life

SERVERS = ["memory"]
RENEW_S = 1.0  # virtual time has many of them


async def serving(life: Life) -> bool:
    """True when the run is finished."""
    fleet, name = life.fleet, life.process.name
    folder = fleet.folders[name]
    new = name == "edge" and not folder.exists() and not fleet.happened
    if new:
        life.run = opening.begin(folder, fleet.config, "main", fleet.initial, clock=fleet.clock, disk=life.disk)
    else:
        await _run_is_ours(life)
        life.run = opening.resume(folder, lock=life.lock, clock=fleet.clock, disk=life.disk)
    run = life.run
    fleet.came(name, run, new=new)
    if run.core.finished:
        fleet.finished_run = run
        return True
    if fleet.broker_is_ours and not fleet.broker.alive():
        fleet.broker.restart()
    broker = fleet.broker if fleet.broker_is_ours else None
    options = EdgeOptions(SERVERS, broker, ports=life.ports, new=new, renew_s=RENEW_S, worker=fleet.worker)
    options.standby = bool(fleet.standby) and not new
    if await EdgeServer(run, options).serve():
        fleet.finished_run = run
    return fleet.finished


async def _run_is_ours(life: Life) -> None:
    """The folder's lock, and where the ledger is at the broker the lease, with all that happened."""
    fleet, folder = life.fleet, life.fleet.folders[life.process.name]
    if fleet.standby == "stream":
        folder.mkdir(exist_ok=True)
        life.lock = Lock(folder / LOCK_NAME)
        place = Place(servers=SERVERS)
        await Handover(folder, "main", place, standby=True, ports=life.ports, disk=life.disk).run()
    elif fleet.standby:
        while not has_ledger(folder) or is_held(folder / LOCK_NAME):  # a lock that is tried for is waited for in real time
            await asyncio.sleep(LOOK_S)
        life.lock = Lock(folder / LOCK_NAME)
