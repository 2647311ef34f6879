"""A connection that is cut where its other end neither asks nor listens: uvicorn would wait for it for ever."""

import asyncio
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ASK_S, LISTEN_S = 20.0, 30.0
"""For the head of a request, from the connection or its first byte on; for what is written to be read on."""


class Patient(H11Protocol):
    """With a time by which a request has begun to be answered, and one by which a full connection has to take more."""

    _asking: asyncio.TimerHandle | None = None
    _listening: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_a_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_a_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_a_head()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP may come behind a head that is being answered, or has been: nothing more can be said then."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        with suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._listening = self.loop.call_later(LISTEN_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _end(self._listening)

    def connection_lost(self, exc: Exception | None) -> None:
        _end(self._asking)
        _end(self._listening)
        super().connection_lost(exc)

    def _wait_for_a_head(self) -> None:
        """Bytes that come one by one win no time; what is between two requests is uvicorn's ``timeout_keep_alive``."""
        between = self.timeout_keep_alive_task is not None
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering or between or self.transport.is_closing():
            _end(self._asking)
            self._asking = None
        elif self._asking is None:
            self._asking = self.loop.call_later(ASK_S, self.transport.abort)


def _end(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
