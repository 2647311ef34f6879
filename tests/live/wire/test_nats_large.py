"""Large messages come and go as the library itself would have it, however they are cut up on the way."""

import asyncio
from typing import Any, NamedTuple

import pytest
from nats.protocol import command, parser

from fedtwin.live.wire.nats_large import LARGE_BYTES, LargeParser, LargeTransport, publication

BODY = bytes(range(256)) * (LARGE_BYTES // 256)


class Heard(NamedTuple):
    sid: int
    subject: bytes
    reply: bytes
    payload: bytes
    headers: bytes | None


class Listening:
    """What a parser makes of the wire."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.pings = 0

    async def _process_msg(self, *message: Any) -> None:
        self.heard.append(Heard(*message))

    async def _process_ping(self) -> None:
        self.pings += 1


def message(payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> bytes:
    middle = b" " + reply if reply else b""
    if headers:
        sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
        return b"HMSG words 7%s %s\r\n%s%s\r\n" % (middle, sizes, headers, payload)
    return b"MSG words 7%s %d\r\n%s\r\n" % (middle, len(payload), payload)


WIRE = b"".join(
    [
        message(b"small"),
        message(BODY, reply=b"answers", headers=b"NATS/1.0\r\nFedtwin-Token: 1\r\n\r\n"),
        b"PING\r\n",
        message(BODY + b"\r\nMSG words 7 5\r\n"),
        message(BODY[:-1]),
        message(BODY, headers=b"NATS/1.0\r\n\r\n"),
        message(b"", reply=b"answers"),
    ]
)


def heard_by(kind: type[parser.Parser], cuts: list[int]) -> Listening:
    listening = Listening()

    async def scene() -> None:
        parsed: Any = kind(listening)
        for begin, end in zip([0, *cuts], [*cuts, len(WIRE)], strict=True):
            await parsed.parse(WIRE[begin:end])

    asyncio.run(scene())
    return listening


@pytest.mark.parametrize("size", [1, 7, 1000, LARGE_BYTES - 1, LARGE_BYTES + 40, 3 * LARGE_BYTES, len(WIRE)])
def test_what_is_heard_does_not_depend_on_where_it_was_cut(size: int) -> None:
    wanted = heard_by(parser.Parser, [])
    assert len(wanted.heard) == 6
    found = heard_by(LargeParser, list(range(size, len(WIRE), size)))
    assert found.heard == wanted.heard and found.pings == wanted.pings == 1
    assert all(type(one.payload) is bytes for one in found.heard)


def test_cut_once_anywhere_near_the_ends_of_a_large_message() -> None:
    wanted, begin = heard_by(parser.Parser, []).heard, WIRE.index(b"HMSG")
    end = WIRE.index(b"PING")
    for near in (begin, end):
        for cut in range(near - 12, near + 90):
            assert heard_by(LargeParser, [begin + 100, cut] if cut > begin + 100 else [cut]).heard == wanted


@pytest.mark.parametrize("headers", [None, {"Fedtwin-Token": "1", "Nats-Msg-Id": "1-u"}])
@pytest.mark.parametrize("reply", ["", "answers"])
def test_a_publication_is_the_librarys(headers: dict[str, str] | None, reply: str) -> None:
    if headers is None:
        wanted = command.pub_cmd("words", reply, BODY)
    else:
        lines = b"NATS/1.0\r\nFedtwin-Token: 1\r\nNats-Msg-Id: 1-u\r\n\r\n"
        wanted = command.hpub_cmd("words", reply, lines, BODY)
    pieces = publication("words", reply, BODY, headers)
    assert b"".join(pieces) == wanted and any(piece is BODY for piece in pieces)


def test_large_pieces_are_written_as_they_are_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    transport = LargeTransport()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(transport, "write", written.append)
    transport.writelines([b"a", b"b", BODY, b"c", BODY, b"d", b"e"])
    assert written == [b"ab", BODY, b"c", BODY, b"de"]
    assert written[1] is BODY
