"""What a run keeps at the broker: the stream of uploads, the twin's bucket, and buckets for models larger than a message."""

from collections.abc import Awaitable, Callable
from functools import partial

from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.views.mirror import open_mirror
from fedtwin.live.wire.ports import Shelf

Make = Callable[[], Awaitable[object]]


class Storage:
    """Every queue, table and bucket at the broker, with how it is made. One that is there is never made anew."""

    def __init__(self, context: EdgeContext, uploads: Uploads) -> None:
        self._context, self._uploads = context, uploads

    def wanted(self) -> dict[Shelf, Make]:
        context, transport, subjects = self._context, self._context.transport, self._context.subjects
        most_bytes, replicas = context.run.model.most_upload_bytes, context.core.live.replicas
        wanted: dict[Shelf, Make] = {
            Shelf("queue", subjects.stream): self._uploads.make_stream,
            Shelf("table", subjects.twin_bucket): lambda: open_mirror(transport, subjects.twin_bucket, replicas),
        }
        buckets: dict[str, int] = {}
        if context.needs_objects:
            buckets[subjects.models_bucket] = 64 * most_bytes
        if context.uploads_need_objects:
            buckets.update({subjects.uploads_bucket(name): 4 * most_bytes for name in context.core.members})
        for bucket, size in buckets.items():
            wanted[Shelf("bucket", bucket)] = partial(transport.make_bucket, bucket, size, replicas)
        return wanted

    async def make_missing(self, timeout_s: float) -> list[Shelf]:
        """What was not there and is now."""
        wanted = self.wanted()
        there = await self._context.transport.shelves(timeout_s)
        missing = [shelf for shelf in wanted if shelf not in there]
        for shelf in missing:
            await wanted[shelf]()
        return missing
