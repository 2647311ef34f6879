"""``fedtwin serve``: the twins of runs as a service and a page."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fedtwin.cli.live_options import CredentialsOption, InsecureOption
from fedtwin.extras import require


def serve(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, finished or going on.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: a free port.")] = 8080,
    host: Annotated[str, typer.Option(help="Address it listens at; other than loopback needs TLS and tokens.")] = "127.0.0.1",
    trust: Annotated[bool, typer.Option("--trust", help="Run the policies of the runs' owners, for why and what-if.")] = False,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may ask: lines of NAME, viewer or operator, and a token.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option("--cert", metavar="FILE", help="Certificate for TLS, PEM.")] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="Its key, PEM.")] = None,
    server: Annotated[
        list[str] | None, typer.Option("--server", metavar="URL", help="Orders go to the edge server at this NATS server.")
    ] = None,
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    beside: Annotated[bool, typer.Option("--beside", hidden=True)] = False,
) -> None:
    """Serve the twins of runs: a page to look at, and an API in the shape of Eclipse Ditto's."""
    require("fedtwin serve", "page", "starlette", "uvicorn", "sse_starlette", "pyarrow")
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # pyarrow looks when imported; its own keeps 32 MB
    from fedtwin.service.server import Listening, serve_runs
    from fedtwin.service.twins import Broker

    broker = Broker(tuple(server or ()), credentials, insecure, beside) if server or beside else None
    where = Listening(host, port, tokens, certificate, key)
    serve_runs(folders, where, say=lambda line: typer.echo(line, err=True), trust=trust, broker=broker, beside=beside)
