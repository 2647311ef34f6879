"""What a run keeps at the broker: the stream of uploads, the twin's bucket, and buckets for models larger than a message."""

import json
from collections.abc import Awaitable, Callable

import nats.js.errors

from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.views.mirror import open_mirror
from fedtwin.live.wire.objects import make_bucket

NAMES = "$JS.API.STREAM.NAMES"
Make = Callable[[], Awaitable[object]]


class Storage:
    """Every stream and bucket by its name at the broker, with how it is made. One that is there is never made anew."""

    def __init__(self, context: EdgeContext, uploads: Uploads) -> None:
        self._context, self._uploads = context, uploads

    def wanted(self) -> dict[str, Make]:
        context, js, subjects = self._context, self._context.js, self._context.subjects
        most_bytes, replicas = context.run.most_upload_bytes, context.core.live.replicas
        wanted: dict[str, Make] = {
            subjects.stream: self._uploads.make_stream,
            f"KV_{subjects.twin_bucket}": lambda: open_mirror(js, subjects.twin_bucket, replicas),
        }
        buckets: dict[str, int] = {}
        if context.needs_objects:
            buckets[subjects.models_bucket] = 64 * most_bytes
        if context.uploads_need_objects:
            buckets.update({subjects.uploads_bucket(name): 4 * most_bytes for name in context.core.members})
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
            answer = json.loads((await self._context.client.request(NAMES, question, timeout=timeout_s)).data)
            if "error" in answer:
                raise nats.js.errors.APIError.from_error(answer["error"])
            page = answer.get("streams") or []
            names.update(page)
            if not page or len(names) >= answer["total"]:
                return names
