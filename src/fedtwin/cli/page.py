"""The page beside a command that runs a fleet: a process of its own, which gives way to it and ends with it."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fedtwin.extras import require
from fedtwin.supervision import Process, launch, stop

PageOption = Annotated[bool, typer.Option("--page", help="Serve a page of the run at http://127.0.0.1:PORT/ while it goes on.")]
PagePort = Annotated[int, typer.Option("--page-port", min=0, max=65535, help="With --page: its port; 0: a free one.")]
STOP_S = 3.0


@contextmanager
def page_beside(
    wanted: bool,
    folder: Path,
    port: int,
    servers: Sequence[str] = (),
    credentials: Path | None = None,
    *,
    insecure: bool = False,
) -> Iterator[Process | None]:
    """While the block runs. What becomes of the page is nothing to the block: it may end before, or never begin."""
    if not wanted:
        yield None
        return
    require("--page", "page", "starlette", "uvicorn", "sse_starlette", "pyarrow")
    command = [sys.executable, "-m", "fedtwin", "serve", str(folder), "--port", str(port), "--beside"]
    command += [word for url in servers for word in ("--server", url)]
    if (operator := _operator_of(credentials)) is not None:
        command += ["--credentials", str(operator)]
    process = launch([*command, *(["--insecure"] if insecure else [])])
    try:
        yield process
    finally:
        stop(process, STOP_S)


def _operator_of(credentials: Path | None) -> Path | None:
    """In the folder of a fleet, which a broker of our own is started with, or beside the edge server's own in it."""
    places = () if credentials is None else (credentials / "operator", credentials.parent / "operator")
    return next((place for place in places if place.is_dir()), None)
