"""What every connection of our own broker has sent so far, and how one is cut.

The numbers come from the broker's monitoring port, on loopback and below a path that nobody can guess; the cut is a request in
the system account, which a secret opens. Where there are certificates a device is cut by revoking it. All of it blocks: it is
for a thread.
"""

import json
import socket
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

WATCHER, ANYONE = "fedtwin-watch", "fedtwin-anyone"
LIMIT_S, MOST_CONNECTIONS, MOST_CLOSED = 2.0, 100_000, 100
CONNECTS = "$SYS.ACCOUNT.*.CONNECT"


class Connection(NamedTuple):
    """``name``: that of the certificate where there are certificates, else what the program calls itself, if anything."""

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
        broker = HTTPConnection("127.0.0.1", self.http_port, timeout=LIMIT_S)  # whatever proxy the environment names
        try:
            broker.request("GET", f"/{self.secret}/connz?auth=1&state=all&limit={MOST_CONNECTIONS}")
            found: dict[str, Any] = json.load(broker.getresponse())
            return [one for one in map(_connection, found["connections"]) if one is not None]
        except (HTTPException, OSError, ValueError, KeyError):
            return None
        finally:
            broker.close()

    def keep_out(self, cids: Iterable[int], names: Collection[str], seconds: float) -> int:
        """Ends these connections and, for so many seconds, every new one that calls itself so, as soon as it is made: before
        it has sent much. How many were ended.
        """
        end, ended = time.monotonic() + seconds, 0
        with suppress(OSError, ValueError, KeyError), socket.create_connection((self.host, self.port), LIMIT_S) as broker:
            lines = broker.makefile("rb")
            server = json.loads(lines.readline().removeprefix(b"INFO "))["server_id"]
            login = json.dumps({"user": WATCHER, "pass": self.secret, "verbose": False, "pedantic": False})
            answers = f"_INBOX.{self.secret}"

            def kick(cid: int) -> bytes:
                order = json.dumps({"cid": cid})
                return f"PUB $SYS.REQ.SERVER.{server}.KICK {answers} {len(order)}\r\n{order}\r\n".encode()

            listening = f"CONNECT {login}\r\nSUB {answers} 1\r\nSUB {CONNECTS} 2\r\nPING\r\n".encode()
            broker.sendall(listening + b"".join(map(kick, cids)))
            while (left_s := end - time.monotonic()) > 0.0:
                broker.settimeout(left_s)
                word, *fields = lines.readline().split()
                if word == b"MSG":
                    told = lines.read(int(fields[-1]) + 2)
                    if fields[1] == b"1":
                        ended += 1
                    elif (one := json.loads(told)["client"]).get("name", "") in names and one.get("user") != WATCHER:
                        broker.sendall(kick(int(one["id"])))
                elif word == b"PING":
                    broker.sendall(b"PONG\r\n")
        return ended


def _connection(found: dict[str, Any]) -> Connection | None:
    """None of who has not logged in, and has said nothing, and of us."""
    user = str(found.get("authorized_user", ""))
    if user in ("", WATCHER):
        return None
    calls_itself = str(found.get("name") or found.get("mqtt_client") or "")
    name = calls_itself if user == ANYONE else user.split("@")[0]
    return Connection(int(found["cid"]), name, int(found["in_msgs"]), int(found["in_bytes"]), "stop" not in found)
