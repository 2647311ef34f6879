"""The real server in a thread of the tests, and a client of it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from fedtwin.service.app import make_app
from fedtwin.service.server import Listening, _socket, settings_of
from fedtwin.service.twins import Twins


@contextmanager
def serving(*folders: Path, **options: Any) -> Iterator[httpx.Client]:
    """Options are those of ``Twins``."""
    with serving_twins(Twins(folders, **options)) as client:
        yield client


@contextmanager
def serving_twins(twins: Twins) -> Iterator[httpx.Client]:
    server = uvicorn.Server(settings_of(make_app(twins), {}))
    with _socket(Listening(port=0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def events_of(client: httpx.Client, address: str, count: int, **headers: str) -> list[tuple[str, str | None, Any]]:
    """The first events of a stream: kind, id and data."""
    found: list[tuple[str, str | None, Any]] = []
    kind, number = "", None
    with client.stream("GET", address, headers={"Accept": "text/event-stream", **headers}) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                number = value
            elif name == "data":
                found.append((kind, number, json.loads(value)))
                kind, number = "", None
                if len(found) == count:
                    break
    return found
