"""A model through nats-py without a copy at every step: in large pieces, which are put together once."""

from collections.abc import Iterator, Mapping

from nats.aio.transport import TcpTransport
from nats.protocol import parser

LARGE_BYTES = 32 * 1024
READ_BYTES = 512 * 1024
END = b"\r\n"


class LargeTransport(TcpTransport):
    """Reads as much as there is, and writes large pieces as they are.

    The library writes until it hears that a connection is lost. ``write`` does nothing then, on every Python; ``writelines``
    of asyncio in 3.12 and 3.13 fails (python/cpython#136234).
    """

    async def read(self, buffer_size: int) -> bytes:
        data: bytes = await super().read(max(buffer_size, READ_BYTES))
        return data

    def writelines(self, payload: list[bytes]) -> None:
        small: list[bytes] = []
        for piece in payload:
            if len(piece) >= LARGE_BYTES:
                self._write(small)
                self.write(piece)  # type: ignore[no-untyped-call]
                small = []
            else:
                small.append(piece)
        self._write(small)

    def _write(self, pieces: list[bytes]) -> None:
        if pieces:
            self.write(b"".join(pieces))  # type: ignore[no-untyped-call]


class LargeParser(parser.Parser):
    """Gathers a large message that has not come whole, and joins its pieces when it has."""

    def reset(self) -> None:
        super().reset()
        self._pieces: list[bytes] = []
        self._missing = 0

    async def parse(self, data: bytes = b"") -> None:
        if self._missing == 0:
            await super().parse(data)
            if self.state == parser.AWAITING_MSG_PAYLOAD and self.needed >= LARGE_BYTES:
                self._pieces, self._missing = [bytes(self.buf)], self.needed + len(END) - len(self.buf)
                self.buf.clear()
            return
        piece, rest = (data, b"") if len(data) <= self._missing else (data[: self._missing], data[self._missing :])
        self._pieces.append(piece)
        self._missing -= len(piece)
        if self._missing == 0:
            await self._came_whole()
        if rest:
            await self.parse(rest)

    async def _came_whole(self) -> None:
        begin, pieces, argument = self.header_needed, self._pieces, self.msg_arg
        headers = b"".join(_between(pieces, 0, begin)) if begin else None
        payload = b"".join(_between(pieces, begin, self.needed))
        self._pieces, self.header_needed, self.state = [], 0, parser.AWAITING_CONTROL_LINE
        await self.nc._process_msg(argument["sid"], argument["subject"], argument["reply"], payload, headers)


def _between(pieces: list[bytes], begin: int, end: int) -> Iterator[memoryview]:
    """The bytes of all pieces from ``begin`` to ``end``."""
    for piece in pieces:
        if begin < len(piece) and end > 0:
            yield memoryview(piece)[max(begin, 0) : end]
        begin, end = begin - len(piece), end - len(piece)


def publication(subject: str, reply: str, payload: bytes, headers: Mapping[str, str] | None) -> list[bytes]:
    """What publishes it, as the library would say it, in pieces; no header's value begins a line of its own."""
    if headers is None:
        return [f"PUB {subject} {reply} {len(payload)}\r\n".encode(), payload, END]
    lines = "".join(f"{key}: {' '.join(value.split())}\r\n" for key, value in headers.items())
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return [f"HPUB {subject} {reply} {len(head)} {len(head) + len(payload)}\r\n".encode() + head, payload, END]
