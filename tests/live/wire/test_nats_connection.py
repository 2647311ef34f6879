"""Who may connect, how a refusal is told, and that connections come back."""

import asyncio
import logging
import os
import shutil
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.process import Broker, BrokerOptions
from fedtwin.live.broker.provisioning import provision
from fedtwin.live.wire import nats_connection
from fedtwin.live.wire.addresses import check_address, ssl_context
from fedtwin.live.wire.nats_connection import RECONNECT_S, connect
from tests.live.brokers import RUN, SecureFleet, running, secure_fleet, until


@pytest.mark.parametrize("url", ["nats://localhost:4222", "nats://127.0.0.1", "nats://127.8.8.8:1", "nats://[::1]:4222"])
def test_this_machine_is_spoken_to_in_plain_text(url: str) -> None:
    check_address(url, credentials=None, insecure=False)


@pytest.mark.parametrize(
    "url",
    ["nats://edge.example:4222", "nats://10.0.0.1", "nats://[2001:db8::1]:4222", "nats://localhost.example", "nats://0.0.0.0"],
)
def test_another_machine_needs_tls_or_insistence(url: str) -> None:
    with pytest.raises(FedtwinError, match=r"TLS is required.*--insecure"):
        check_address(url, credentials=None, insecure=False)
    check_address(url, credentials=None, insecure=True)
    check_address(url, credentials=Path("x"), insecure=False)


def test_tls_without_credentials_is_an_error_even_for_who_insists() -> None:
    with pytest.raises(FedtwinError, match="asks for TLS: give --credentials"):
        check_address("tls://edge.example:4222", credentials=None, insecure=True)


@pytest.mark.parametrize(
    "url", ["edge:4222", "http://127.0.0.1", "nats://", "nats://u:p@127.0.0.1", "nats://127.0.0.1:x", "nats://[::1"]
)
def test_an_address_has_a_form(url: str) -> None:
    with pytest.raises(FedtwinError, match="is not of the form"):
        check_address(url, credentials=None, insecure=True)


@pytest.mark.parametrize("ended", [ConnectionResetError, ConnectionAbortedError, BrokenPipeError])
def test_a_connection_ended_while_we_still_spoke_is_tried_again_for_its_reason(
    monkeypatch: pytest.MonkeyPatch, ended: type[OSError]
) -> None:
    answers = [ended("gone"), ended("gone"), OSError("Authorization Violation")]

    async def tried(*_: object) -> None:
        raise answers.pop(0)

    monkeypatch.setattr(nats_connection, "_connected", tried)
    with pytest.raises(FedtwinError, match="do not accept each other: Authorization Violation"):
        asyncio.run(connect(["nats://127.0.0.1"], name="d", inbox="d", credentials=None, insecure=False, keep_trying=False))


def test_credentials_must_be_there_and_fit(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    provision(fleet, run=RUN, server_names=[], devices=["a", "b"])
    ssl_context(fleet / "devices/a")
    shutil.copy(fleet / "devices/b/key.pem", fleet / "devices/a/key.pem")
    with pytest.raises(FedtwinError, match="cannot be used: key values mismatch"):
        ssl_context(fleet / "devices/a")
    (fleet / "devices/b/cert.pem").unlink()
    with pytest.raises(FedtwinError, match=r"lack a readable cert\.pem"):
        ssl_context(fleet / "devices/b")


def test_a_connection_comes_back_after_the_broker_was_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        events: list[str] = []

        async def gone() -> None:
            events.append("gone")

        async def back() -> None:
            events.append("back")

        with running(tmp_path) as broker:
            client = await connect(
                [broker.url], name="a", inbox="a", credentials=None, insecure=False, on_disconnect=gone, on_reconnect=back
            )
            assert client.new_inbox().startswith("_INBOX.a.")
            heard: list[bytes] = []

            async def listen(message: object) -> None:
                heard.append(message.data)  # type: ignore[attr-defined]

            await client.subscribe("word", cb=listen)
            for word in (b"one", b"two"):
                os.kill(broker.pid, signal.SIGKILL)
                broker.restart()
                assert await until(lambda: events[-1:] == ["back"] and client.is_connected)
                await client.publish("word", word)
                await client.flush()
                assert await until(lambda word=word: heard[-1:] == [word])  # type: ignore[misc]
                events.append("next")
            await client.close()
        assert events[:3] == ["gone", "back", "next"]
        assert not [record for record in caplog.records if "for good" in record.message]

    asyncio.run(scene())


def test_nobody_there_is_an_error_or_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        with running(tmp_path) as broker:
            broker.stop()
            settings = {"name": "a", "inbox": "a", "credentials": None, "insecure": False}
            with pytest.raises(FedtwinError, match=r"cannot be reached: .*refused|Connect call failed"):
                await connect([broker.url], **settings, keep_trying=False)  # type: ignore[arg-type]
            waiting = asyncio.create_task(connect([broker.url], **settings))  # type: ignore[arg-type]
            assert await until(lambda: "Trying again" in caplog.text)
            await asyncio.sleep(2 * max(RECONNECT_S))  # it is not said with every attempt
            broker.restart()
            await (await waiting).close()
        assert caplog.text.count("Trying again") == 1

    asyncio.run(scene())


def wrong_authority(fleet: SecureFleet, folder: Path) -> Path:
    """Somebody else's fleet, whose device has the same name; it trusts our server."""
    provision(folder / "other", run=RUN, server_names=[], devices=["press-1"])
    shutil.copy(fleet.folder / "ca.pem", folder / "other/devices/press-1/ca.pem")
    return folder / "other/devices/press-1"


def expired(fleet: SecureFleet) -> Path:
    provision(fleet.folder, run=RUN, server_names=[], devices=["old"], days=1, _now=datetime.now(UTC) - timedelta(days=2))
    return fleet.folder / "devices/old"


def test_who_is_not_accepted_is_told_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        with secure_fleet(tmp_path) as fleet:
            with pytest.raises(FedtwinError, match="the server does not know who issued this certificate"):
                await fleet.connect("press-1", wrong_authority(fleet, tmp_path))
            with pytest.raises(FedtwinError, match="this certificate has expired"):
                await fleet.connect("press-1", expired(fleet))
            provision(tmp_path / "third", run=RUN, server_names=[], devices=["press-1"])
            with pytest.raises(FedtwinError, match=r"the server's certificate is not accepted, unable to get local issuer"):
                await fleet.connect("press-1", tmp_path / "third/devices/press-1")
            trying = asyncio.create_task(
                connect([fleet.broker.url], name="x", inbox="x", credentials=tmp_path / "third/devices/press-1", insecure=False)
            )
            assert await until(lambda: "Trying again" in caplog.text)
            await asyncio.sleep(2 * max(RECONNECT_S))
            trying.cancel()
        told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
        assert len([line for line in told if "Trying again" in line]) == 1, told

    asyncio.run(scene())


def test_a_server_is_accepted_under_its_own_names_only(tmp_path: Path) -> None:
    provision(tmp_path / "fleet", run=RUN, server_names=["edge.example"], devices=["a"])
    options = BrokerOptions(tmp_path / "store", host="127.0.0.2", credentials=tmp_path / "fleet")
    broker = Broker.start(tmp_path / "broker", options, die_with_parent=True)
    try:
        with pytest.raises(FedtwinError, match=r"the server's certificate is not accepted, .*mismatch.*127\.0\.0\.2"):
            asyncio.run(SecureFleet(tmp_path / "fleet", broker, 0).connect("a"))
    finally:
        broker.stop()


def test_a_server_that_asks_for_no_tls_gets_no_word(tmp_path: Path) -> None:
    """A forged greeting in plain text must not talk a device with credentials out of TLS."""

    async def scene() -> None:
        heard = bytearray()

        async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(
                b'INFO {"server_id":"x","version":"2.15.1","headers":true,"max_payload":1048576,"tls_required":false}\r\n'
            )
            heard.extend(await reader.read(4096))
            writer.close()

        provision(tmp_path, run=RUN, server_names=[], devices=["a"])
        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(FedtwinError):
            await connect([url], name="a", inbox="a", credentials=tmp_path / "devices/a", insecure=False, keep_trying=False)
        server.close()
        await server.wait_closed()
        assert heard.startswith(b"\x16\x03") and b"CONNECT" not in heard

    asyncio.run(scene())


def test_plain_text_clients_are_refused_by_a_secure_broker(tmp_path: Path) -> None:
    async def scene() -> None:
        with secure_fleet(tmp_path) as fleet:
            url = fleet.broker.url.replace("tls", "nats")
            with pytest.raises(FedtwinError, match="may want TLS"):
                await connect([url], name="a", inbox="a", credentials=None, insecure=True, keep_trying=False)

    asyncio.run(scene())


def test_a_reason_that_was_not_heard_is_asked_for_again() -> None:
    """A broker that refuses closes at once: who still writes then learns only that the connection is lost."""
    asked: list[int] = []

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(len(asked))
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"proto":1}\r\n')
        if len(asked) < 3:
            writer.transport.abort()
            return
        await reader.readuntil(b"PING")
        writer.write(b"-ERR 'Authorization Violation'\r\n")
        await writer.drain()
        writer.close()

    async def tries() -> None:
        server = await asyncio.start_server(refuses, "127.0.0.1", 0)
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            with pytest.raises(FedtwinError, match="Authorization Violation"):
                await connect([url], name="a", inbox="a", credentials=None, insecure=False, keep_trying=False)

    asyncio.run(tries())
    assert len(asked) == 3
