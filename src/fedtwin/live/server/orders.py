"""What a person orders while the run goes on: carried out, in the ledger, and then answered."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from pydantic import ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.live.run.settable import is_for_devices
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.traffic import Traffic
from fedtwin.live.wire.ports import Incoming, TransportError
from fedtwin.live.wire.protocol import Command, Order, Ordered, misfit

INBOX = "_INBOX.operator."
BY = "operator"
"""The name of the credentials: the broker takes orders from no others."""


class Orders:
    """Who may give them is the broker's to say; answers go to an operator's inbox only."""

    def __init__(self, context: EdgeContext, traffic: Traffic) -> None:
        self._context, self._traffic, self._run, self._core = context, traffic, context.run, context.core
        self._carry_out: dict[Command, Callable[[Order], Awaitable[str]]] = {
            "pause": self._pause,
            "resume": self._resume,
            "drain": self._drain,
            "release": self._release,
            "set": self._set,
            "finish": self._finish,
        }

    async def open(self) -> None:
        await self._context.transport.subscribe(self._context.subjects.admin, self._on_order)

    async def _on_order(self, message: Incoming) -> None:
        if not message.reply.startswith(INBOX) or not self._context.may_serve:
            return
        try:
            order = Order.model_validate_json(message.data)
            self._require_this_run(order)
            if self._core.ending is not None or self._core.finished:
                raise FedtwinError(f"The run ends already: {self._core.ending or 'all rounds are played'}.")
            answer = Ordered(done=True, words=(await self._carry_out[order.command](order))[:500])
            self._context.wake.set()
        except ValidationError as error:
            answer = Ordered(done=False, words=misfit(error))
        except (FedtwinError, OSError) as error:
            answer = Ordered(done=False, words=str(error)[:500])
        await self._context.settled()
        with suppress(TransportError):
            await message.respond(answer.encoded())

    def _require_this_run(self, order: Order) -> None:
        """Runs of one name follow each other at a broker: whoever looks at the folder of an earlier one means that one."""
        began = self._core.began
        if order.identity is not None and began is not None and order.identity != began.identity:
            raise FedtwinError(f"The order is for another run: the run {self._run.name!r} here is not the one it names.")

    async def _pause(self, order: Order) -> str:
        if self._core.paused:
            raise FedtwinError("The run is paused already.")
        self._run.steer("pause", BY, order.person)
        return f"The run is paused: no new tasks, {len(self._core.open)} in flight are still mixed in."

    async def _resume(self, order: Order) -> str:
        if not self._core.paused:
            raise FedtwinError("The run is not paused.")
        self._run.steer("resume", BY, order.person)
        if self._core.round >= self._core.config.run.rounds:
            return f"The run ends: it has had its {self._core.config.run.rounds} rounds."
        return "The run goes on."

    async def _finish(self, order: Order) -> str:
        self._run.steer("finish", BY, order.person)
        return f"The run ends at round {self._core.round}, when all that is in flight is over: {len(self._core.open)}."

    async def _drain(self, order: Order) -> str:
        name = order.device or ""
        if name not in self._core.members:
            raise FedtwinError(f"{name} is not known here: there is nothing to drain.")
        if name in self._core.drained:
            raise FedtwinError(f"{name} is drained already.")
        self._run.steer("drain", BY, order.person, name=name)
        device = self._core.number_of(name)
        busy = device is not None and self._core.task_of(device) is not None
        return f"{name} is given no new task until it is released{'; the one it has is still mixed in' if busy else ''}."

    async def _set(self, order: Order) -> str:
        setting = order.setting or ""
        section, _, key = setting.partition(".")
        before = getattr(getattr(self._core.config, section, None), key, None)
        self._run.change(setting, order.value, BY, order.person)
        if is_for_devices(self._core.config, setting):
            await self._context.call_the_fleet()
        was = "" if before is None else f", it was {before}"
        kept = ""
        if setting.startswith("objective.") and self._core.state.policy.state is not None:
            kept = "; what the policy keeps of its own stays as it was learned"
        if setting == "run.rounds" and order.value <= self._core.round:
            kept = f": round {self._core.round} has begun, so the run ends when all that is in flight is over"
        return f"{setting} = {order.value} from round {self._core.round + 1} on{was}{kept}."

    async def _release(self, order: Order) -> str:
        """Out of quarantine, back-off, drain, cut and revocation, whichever it was."""
        name = order.device or ""
        member, was = self._core.members.get(name), list[str]()
        if member is not None and member.quarantine_reason is not None:
            was.append(f"it was in quarantine ({member.quarantine_reason})")
        if name in self._core.backed_off:
            was.append("its tasks had come to nothing")
        if name in self._core.drained:
            was.append("it was drained")
        if back := await self._traffic.release(name):
            was.append(back)
        if not was:
            known = "is not left out" if member is not None else "is not known here"
            raise FedtwinError(f"{name} {known}: there is nothing to release.")
        self._run.release(name, BY, order.person)
        if self._context.heard_lately([name]):
            self._context.let_back(name)
        return f"{name} is released: {', '.join(was)}."
