"""What a run keeps at the broker: the stream of uploads, the twin's bucket, and buckets for models larger than a message."""

import json
from collections.abc import Awaitable, Callable

import nats.js.errors

from fedtwin.live.desk import Desk
from fedtwin.live.intake import Intake
from fedtwin.live.mirror import open_mirror
from fedtwin.live.objects import make_bucket

NAMES = "$JS.API.STREAM.NAMES"
Make = Callable[[], Awaitable[object]]


class Storage:
    """Every stream and bucket by its name at the broker, with how it is made. One that is there is never made anew."""

    def __init__(self, desk: Desk, intake: Intake) -> None:
        self._desk, self._intake = desk, intake

    def wanted(self) -> dict[str, Make]:
        desk, js, subjects = self._desk, self._desk.js, self._desk.subjects
        most_bytes, replicas = desk.run.most_upload_bytes, desk.core.live.replicas
        wanted: dict[str, Make] = {
            subjects.stream: self._intake.make_stream,
            f"KV_{subjects.twin_bucket}": lambda: open_mirror(js, subjects.twin_bucket, replicas),
        }
        buckets: dict[str, int] = {}
        if desk.needs_objects:
            buckets[subjects.models_bucket] = 64 * most_bytes
        if desk.uploads_need_objects:
            buckets.update({subjects.uploads_bucket(name): 4 * most_bytes for name in desk.core.members})
        for bucket, size in buckets.items():
            wanted[f"OBJ_{bucket}"] = lambda bucket=bucket, size=size: make_bucket(js, bucket, size, replicas)  # type: ignore[misc]
        return wanted

    async def make_missing(self, timeout_s: float) -> list[str]:
        """The names of what was not there and is now."""
        wanted = self.wanted()
        there = await self._names(timeout_s)
        missing = [name for name in wanted if name not in there]
        for name in missing:
            await wanted[name]()
        return missing

    async def _names(self, timeout_s: float) -> set[str]:
        names: set[str] = set()
        while True:
            question = json.dumps({"offset": len(names)}).encode()
            answer = json.loads((await self._desk.client.request(NAMES, question, timeout=timeout_s)).data)
            if "error" in answer:
                raise nats.js.errors.APIError.from_error(answer["error"])
            page = answer.get("streams") or []
            names.update(page)
            if not page or len(names) >= answer["total"]:
                return names
