"""What every connection of our own broker has sent so far, and how one is cut.

The numbers come from the broker's monitoring port, on loopback and below a path that nobody can guess; the cut is a request in
the system account, which a secret opens. Where there are certificates a device is cut by revoking it. All of it blocks: it is
for a thread.
"""

import json
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

WATCHER, ANYONE = "fedtwin-watch", "fedtwin-anyone"
LIMIT_S, MOST_CONNECTIONS, MOST_CLOSED = 2.0, 100_000, 300


class Connection(NamedTuple):
    """``name``: that of the certificate where there are certificates, else what the program calls itself."""

    cid: int
    name: str
    messages: int
    size_bytes: int
    is_open: bool = True


@dataclass(frozen=True)
class Monitor:
    """Where a broker tells of itself, and the secret for it."""

    host: str
    port: int
    http_port: int
    secret: str

    def connections(self) -> list[Connection] | None:
        """Everybody who is connected, or was lately: who comes anew for every few messages is counted too. None where the
        broker does not answer.
        """
        url = f"http://127.0.0.1:{self.http_port}/{self.secret}/connz?auth=1&state=all&limit={MOST_CONNECTIONS}"
        try:
            with urlopen(url, timeout=LIMIT_S) as answer:
                found: dict[str, Any] = json.load(answer)
            return [_connection(one) for one in found["connections"]]
        except (URLError, OSError, ValueError, KeyError):
            return None

    def kick(self, cid: int) -> bool:
        """Ends a connection; its program may come again. False where that could not be asked."""
        with suppress(OSError, ValueError, KeyError), socket.create_connection((self.host, self.port), LIMIT_S) as broker:
            lines = broker.makefile("rb")
            server = json.loads(lines.readline().removeprefix(b"INFO "))["server_id"]
            login = json.dumps({"user": WATCHER, "pass": self.secret, "verbose": False, "pedantic": False})
            order = json.dumps({"cid": cid})
            asked, answer = f"$SYS.REQ.SERVER.{server}.KICK", f"_INBOX.{self.secret}"
            said = f"CONNECT {login}\r\nSUB {answer} 1\r\nPUB {asked} {answer} {len(order)}\r\n{order}\r\n"
            broker.sendall(said.encode())
            return lines.readline().startswith(b"MSG")
        return False


def _connection(found: dict[str, Any]) -> Connection:
    user = str(found.get("authorized_user", ""))
    calls_itself = str(found.get("name") or found.get("mqtt_client") or "")
    name = calls_itself if user in ("", ANYONE) else user.split("@")[0]
    return Connection(int(found["cid"]), name, int(found["in_msgs"]), int(found["in_bytes"]), "stop" not in found)
