"""The application: finds the route of a request, checks it, answers in a thread, and tells a browser what a page may do."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

from anyio import to_thread
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fedtwin.errors import FedtwinError
from fedtwin.service.all_routes import ROUTES
from fedtwin.service.bodies import check_body
from fedtwin.service.limits import Limits, body_of
from fedtwin.service.memory import LARGE_BYTES, give_memory_back
from fedtwin.service.parameters import checked
from fedtwin.service.routes import Answer, Asked, Route, find, segments_of
from fedtwin.service.telling import UnansweredError, encoded, log_unexpected
from fedtwin.service.twins import Twins

STATIC = Path(__file__).parent / "static"
HEARTBEAT_S, LOOK_S = 10, 0.5
ASSETS = {f"/static/{path.relative_to(STATIC).as_posix()}": path for path in STATIC.rglob("*.*") if path.is_file()}
ASSETS["/"] = ASSETS.pop("/static/index.html")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
KINDS = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
KINDS |= {".json": "application/json", ".txt": "text/plain", ".map": "application/json", ".png": "image/png"}


def make_app(twins: Twins, routes: Sequence[Route] = ROUTES) -> Starlette:
    """The whole service over the runs."""
    limits = Limits()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing here speaks WebSocket
            await send({"type": "websocket.close"})
            return
        try:
            response = await _answered(twins, routes, limits, Request(scope, receive))
        except UnansweredError as reason:
            response = _refusal(reason.status, twins.without_folders(reason.sentence), reason.headers)
        except FedtwinError as error:
            response = _refusal(409, twins.without_folders(str(error)), {})
        except ClientDisconnect:
            return
        except Exception as error:  # records may hold anything; who asked is told, and the next is answered
            log_unexpected(f"{scope['method']} {scope['path'][:200]!r}", error)
            response = _refusal(500, f"It could not be answered, for a reason that is logged: {type(error).__name__}.", {})
        await response(scope, receive, send)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with twins.opened():
            yield

    app = Starlette(lifespan=lifespan)
    app.router.default = answer
    return app


async def _answered(twins: Twins, routes: Sequence[Route], limits: Limits, request: Request) -> Response:
    client = request.client.host if request.client is not None else "?"
    twins.access.require_own_page(request.method, request.headers)
    if (page := _static(request.method, request.url.path)) is not None:
        return page
    limits.require_rate(client)
    segments = segments_of(request.scope.get("raw_path", request.url.path.encode()).decode("ascii", "replace"))
    route, held = find(routes, request.method, segments)
    person = twins.access.require(route.role, request.headers, request.cookies)
    query = checked(route.parameters, request.query_params.multi_items())
    body = None
    if route.body is not None:
        body = await body_of(request)
        check_body(route.body, body)
    who = None if person is None else person.name
    role = person.role if person is not None and twins.broker is not None else "viewer"
    asked = Asked(held, query, dict(request.headers), body, who, role, segments)
    if route.at_once:
        return cast(Response, _made(route, twins, asked))
    async with left(request, asked.gone) if route.leaves else nullcontext():
        found = await to_thread.run_sync(partial(_made, route, twins, asked), limiter=limits.threads)
    if isinstance(found, Response):
        return found
    return _Stream(found, limits.require_stream(client))


class _Stream(EventSourceResponse):
    """Gives its place among the streams back when it ends, also where it never began."""

    def __init__(self, events: AsyncIterator[Any], give_back: Callable[[], None]) -> None:
        super().__init__(events, ping=HEARTBEAT_S, headers=dict(HEADERS))
        self._give_back = give_back

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._give_back()


@asynccontextmanager
async def left(request: Request, gone: threading.Event) -> AsyncIterator[None]:
    """``gone`` is set when nobody waits for the answer any more."""

    async def look() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(LOOK_S)
        gone.set()

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()


def _made(route: Route, twins: Twins, asked: Asked) -> Response | AsyncIterator[Any]:
    """In a thread: what reads files or computes holds up nobody else."""
    found: Any = route.answer(twins, asked)
    if isinstance(found, AsyncIterator):
        return found
    answer = found if isinstance(found, Answer) else Answer(found)
    content = answer.content if isinstance(answer.content, bytes) else encoded(answer.content)
    if len(content) > LARGE_BYTES:
        give_memory_back()
    return Response(content, answer.status, {**HEADERS, **answer.headers}, answer.media_type)


def _static(method: str, path: str) -> Response | None:
    """The page and what it is made of; nothing outside its folder has a path."""
    file = ASSETS.get(path)
    if method not in ("GET", "HEAD") or file is None:
        return None
    return Response(_content(file, file.stat().st_mtime_ns), 200, HEADERS, KINDS.get(file.suffix, "application/octet-stream"))


@lru_cache(maxsize=200)
def _content(file: Path, changed_ns: int) -> bytes:  # noqa: ARG001
    """A page is made of fifty files, which are small: from memory each takes less than half the time."""
    return file.read_bytes()


def _refusal(status: int, sentence: str, headers: dict[str, str]) -> Response:
    return Response(encoded({"status": status, "error": sentence}), status, {**HEADERS, **headers}, "application/json")
