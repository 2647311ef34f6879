"""A small web server beside the run, in a thread of its own: metrics, and whether all is well."""

import threading
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import NamedTuple

from prometheus_client import CollectorRegistry, MetricsHandler


class Answer(NamedTuple):
    """Whether it is so, and a few words about it."""

    well: bool
    words: str = "ok"


def start_server(host: str, port: int, registry: CollectorRegistry, asked: Mapping[str, Callable[[], Answer]]) -> int:
    """Answers until the process ends, at every path but those of ``asked`` with the metrics; gives the port."""

    class Handler(MetricsHandler):
        def do_GET(self) -> None:  # noqa: N802
            answer = asked.get(self.path.partition("?")[0])
            if answer is None:
                super().do_GET()
                return
            well, words = answer()
            self.send_response(200 if well else 503)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"{words}\n".encode())

    Handler.registry = registry

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True

    server = Server((host, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return int(server.server_port)
