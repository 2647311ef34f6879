"""A viewer sees the run, and can do nothing else; tried on a real broker."""

import asyncio
import json
from pathlib import Path

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.live.seeing import Viewer
from fedtwin.live.wire.nats_transport import NatsTransport
from fedtwin.live.wire.protocol import Subjects
from tests.live.broker.test_provisioning import prepared, refused
from tests.live.brokers import RUN, SecureFleet, secure_fleet, until

SUBJECTS = Subjects(RUN)
TWIN = f"KV_{SUBJECTS.twin_bucket}"
FORBIDDEN = (
    *(SUBJECTS.admin, SUBJECTS.call, SUBJECTS.task("press-1"), SUBJECTS.hello("viewer"), SUBJECTS.beat("press-1")),
    *(f"$KV.{SUBJECTS.twin_bucket}.run", f"$JS.API.STREAM.PURGE.{TWIN}", f"$JS.API.STREAM.DELETE.{TWIN}"),
    *(f"$JS.API.CONSUMER.CREATE.{TWIN}", f"$JS.API.DIRECT.GET.{TWIN}", "_INBOX.press-1.x"),
    f"$JS.API.STREAM.INFO.OBJ_{SUBJECTS.models_bucket}",
)


async def scene(fleet: SecureFleet, caplog: pytest.LogCaptureFixture) -> None:
    async with fleet.clients("edge", "press-1", "viewer", "operator") as (edge, device, viewer, operator):
        await prepared(edge)
        await NatsTransport(edge).put(SUBJECTS.twin_bucket, "run", b"{}")
        for who in (viewer, operator):
            assert await NatsTransport(who).table(SUBJECTS.twin_bucket) == {"run": b"{}"}
        for who in (edge, device, viewer):
            said = json.loads((await who.request("$SYS.REQ.USER.INFO", b"", timeout=5)).data)
            assert said["data"]["user"].startswith(f"{who.options['name']}@") and said["server"]["time"]
        for subject in FORBIDDEN:
            await viewer.publish(subject, b"")
            await viewer.flush()
            assert await until(lambda subject=subject: refused(caplog, subject)), subject  # type: ignore[misc]
        await device.publish(f"$JS.API.STREAM.INFO.{TWIN}", b"")
        await device.flush()
        assert await until(lambda: refused(caplog, f"$JS.API.STREAM.INFO.{TWIN}")), "the others' state is not a device's"
        assert await NatsTransport(edge).table(SUBJECTS.twin_bucket) == {"run": b"{}"}


def test_a_viewer_reads_the_twin_and_does_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with secure_fleet(tmp_path) as fleet:
        asyncio.run(scene(fleet, caplog))
        with (
            Viewer([fleet.broker.url], run=RUN, credentials=fleet.credentials("press-1")) as nosy,
            pytest.raises(FedtwinError, match="may not read run 'main', use those of its viewer"),
        ):
            nosy.look()
        with (
            Viewer([fleet.broker.url], run="other", credentials=fleet.credentials("viewer")) as early,
            pytest.raises(FedtwinError, match="may not read run 'other'"),
        ):
            early.look()
