"""An order that names another run than the one that is served here is refused."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.orders import INBOX, Orders
from fedtwin.live.wire.protocol import Order, Ordered
from tests.live.run.test_live_run import begun


class Given:
    """A message of an operator, and what it was answered."""

    reply = f"{INBOX}1"

    def __init__(self, order: Order) -> None:
        self.data, self.answer = order.encoded(), b""

    async def respond(self, data: bytes) -> None:
        self.answer = data


def answered(live: LiveRun, order: Order) -> Ordered:
    async def settled() -> None: ...

    async def give() -> Ordered:
        wake = asyncio.Event()
        context = SimpleNamespace(run=live, core=live.core, may_serve=True, wake=wake, settled=settled)
        given = Given(order)
        await Orders(cast(Any, context), cast(Any, None))._on_order(cast(Any, given))
        return Ordered.model_validate_json(given.answer)

    return asyncio.run(give())


def test_runs_of_one_name_take_their_own_orders_only(tmp_path: Path) -> None:
    old, fresh = begun(tmp_path / "old"), begun(tmp_path / "fresh")
    old.close()
    assert old.core.began is not None and fresh.core.began is not None
    refused = answered(fresh, Order(command="finish", identity=old.core.began.identity))
    assert not refused.done and refused.words == ("The order is for another run: the run 'main' here is not the one it names.")
    assert fresh.core.ending is None
    assert answered(fresh, Order(command="pause", identity=fresh.core.began.identity)).done
    assert answered(fresh, Order(command="resume")).done, "who names none means the run that is there"
    fresh.close()
