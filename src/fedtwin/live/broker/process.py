"""The managed NATS server: started, found again after a crash of whoever started it, restarted on the same port."""

import json
import os
import secrets
import shutil
import signal
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.live.broker.config import BrokerOptions, check_exposure, config_text, port_in
from fedtwin.live.broker.monitor import Connection, Monitor
from fedtwin.live.broker.program import answers, executable, free_port
from fedtwin.processes import runs_with
from fedtwin.supervision import Process, launch, wait_until

__all__ = ["Broker", "BrokerOptions", "local_broker"]
START_S, STOP_S = 20.0, 10.0
ANSWER_S = 2.0
PORT_TRIES, PORT_FREED_S = 5, 1.0
MONITOR_NAME = "monitor.json"


class Broker:
    """A running nats-server. It belongs to a folder, not to a process: a killed edge server leaves it running on purpose."""

    def __init__(self, folder: Path, options: BrokerOptions, *, die_with_parent: bool = False) -> None:
        self.folder, self.options = folder, options
        self._die_with_parent = die_with_parent
        self._process: Process | None = None
        self._adopted_pid = 0

    @classmethod
    def start(cls, folder: Path, options: BrokerOptions, *, insecure: bool = False, die_with_parent: bool = False) -> "Broker":
        """Starts it in a session of its own, so that Ctrl-C does not reach it, and waits until it listens."""
        check_exposure(options, insecure=insecure)
        folder = _made(folder)
        recorded = _recorded(folder)
        if recorded and runs_with(recorded["pid"], str(folder / "nats.conf")):
            raise FedtwinError(f"the broker of {str(folder)!r} is running already, as process {recorded['pid']}.")
        for _ in range(PORT_TRIES):
            broker = cls(
                folder, replace(options, port=options.port or free_port(options.host)), die_with_parent=die_with_parent
            )
            trouble = broker._launch() if options.port is None else broker._launch_when_the_port_is_free()
            if trouble is None:
                return broker
            if options.port is not None or "in use" not in trouble:
                break
        raise FedtwinError(f"the broker of {str(folder)!r} does not start: {trouble}.")

    @classmethod
    def adopt_or_start(
        cls, folder: Path, options: BrokerOptions, *, insecure: bool = False, die_with_parent: bool = False
    ) -> "Broker":
        """The broker that runs in this folder already, or a new one on the port of the last, where the devices look for it."""
        check_exposure(options, insecure=insecure)
        folder = _made(folder)
        recorded = _recorded(folder)
        if recorded:
            options = replace(options, port=options.port or recorded["port"], **_recorded_monitor(folder))
            if runs_with(recorded["pid"], str(folder / "nats.conf")):
                found = cls(folder, options, die_with_parent=die_with_parent)
                found._adopted_pid = recorded["pid"]
                if (folder / "nats.conf").read_text(encoding="utf-8") == config_text(folder, options):
                    found.reload()
                    return found
                found.stop()
        return cls.start(folder, options, insecure=insecure, die_with_parent=die_with_parent)

    @classmethod
    def stop_left_over(cls, folder: Path, options: BrokerOptions) -> None:
        """Stops the broker that runs in this folder, if one does."""
        recorded = _recorded(folder.resolve())
        if recorded and runs_with(recorded["pid"], str(folder.resolve() / "nats.conf")):
            found = cls(folder.resolve(), options)
            found._adopted_pid = recorded["pid"]
            found.stop()

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
        host = anywhere.get(self.options.host, f"[{self.options.host}]" if ":" in self.options.host else self.options.host)
        return f"{'nats' if self.options.credentials is None else 'tls'}://{host}:{self.options.port}"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else self._adopted_pid

    def alive(self) -> bool:
        return self._process.poll() is None if self._process else runs_with(self.pid, str(self.folder / "nats.conf"))

    def answers(self, limit_s: float = ANSWER_S) -> bool:
        """False where it runs and hangs."""
        place, secure = urlsplit(self.url), self.options.credentials is not None
        return answers(place.hostname or "", place.port or 0, secure=secure, limit_s=limit_s)

    @property
    def has_certificates(self) -> bool:
        return self.options.credentials is not None

    def connections(self) -> list[Connection] | None:
        """Everybody who is connected, with what each has sent; None where it does not tell. It blocks for a while."""
        return self._monitor.connections()

    def keep_out(self, cids: Iterable[int], names: Collection[str], seconds: float) -> int:
        """Ends these connections, and new ones by these names; it blocks so long. Nothing where there are certificates."""
        return 0 if self.has_certificates else self._monitor.keep_out(cids, names, seconds)

    def unheard(self, subjects: Iterable[str]) -> None:
        """Nobody hears what is published there, and nowhere else, until it is started anew. Nothing where there are
        certificates.
        """
        unheard = tuple(sorted(set(subjects)))
        if unheard != self.options.unheard and self.options.credentials is None:
            again = tuple(sorted({*self.options.heard_again, *self.options.unheard} - {*unheard}))
            self.options = replace(self.options, unheard=unheard, heard_again=again)
            write_whole(self.folder / "nats.conf", config_text(self.folder, self.options), 0o600)
            self.reload()

    def revoke(self, name: str) -> bool:
        """Takes a device's rights away for good, where it has a certificate, and cuts it off; it blocks for a while."""
        from fedtwin.live.broker import provisioning  # needs the library cryptography

        credentials = self.options.credentials
        if credentials is None or name in provisioning.ROLES:
            return False
        told = provisioning.revoke(credentials, name, cut=True)
        if not told:
            self.reload()
        return told or self.alive()

    def reinstate(self, name: str) -> bool:
        """Gives back what ``revoke`` has taken away, and nobody else; it blocks for a while."""
        from fedtwin.live.broker import provisioning

        credentials = self.options.credentials
        if credentials is None or name in provisioning.ROLES:
            return False
        reinstated = provisioning.reinstate(credentials, name)
        if reinstated:
            self.reload()
        return reinstated

    @property
    def _monitor(self) -> Monitor:
        host = urlsplit(self.url).hostname or "127.0.0.1"
        return Monitor(host, self.options.port or 0, self.options.monitor_port or 0, self.options.secret or "")

    @property
    def store(self) -> Path:
        return self.options.store

    def room_bytes(self) -> int:
        """What is left on the disk of its store."""
        store = self.options.store.resolve()
        there = next(folder for folder in (store, *store.parents) if folder.exists())
        return shutil.disk_usage(there).free

    def reload(self) -> None:
        """Reads users and certificates anew. Whoever is no longer a user is cut off; the others notice nothing."""
        if self.alive():
            os.kill(self.pid, signal.SIGHUP)

    def restart(self) -> None:
        """Stops it, if it runs, and starts it on the same port with the same streams."""
        self.stop()
        trouble = self._launch_when_the_port_is_free()
        if trouble is not None:
            raise FedtwinError(f"the broker of {str(self.folder)!r} does not start again: {trouble}.")

    def stop(self) -> None:
        """Asks it to end, and insists after a while. Stopping it again does nothing."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.alive():
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
                wait_until(lambda: not self.alive(), STOP_S)

    def _launch_when_the_port_is_free(self) -> str | None:
        """A process that was killed is gone before its port is: that is waited for."""
        troubles: list[str | None] = []

        def tried() -> bool:
            troubles.append(trouble := self._launch())
            return trouble is None or "in use" not in trouble

        wait_until(tried, PORT_FREED_S)
        return troubles[-1]

    def _launch(self) -> str | None:
        """Starts the process; gives what went wrong, if something did: then none is left."""
        try:
            return self._launched()
        except OSError as error:
            self.stop()
            return error.strerror or str(error)

    def _launched(self) -> str | None:
        conf, log, errors = (self.folder / name for name in ("nats.conf", "nats.log", "nats.err"))
        port, secret = free_port("127.0.0.1"), secrets.token_hex(16)
        self.options = replace(self.options, monitor_port=port, secret=secret, unheard=(), heard_again=())
        write_whole(conf, config_text(self.folder, self.options), 0o600)
        seen = log.stat().st_size if log.exists() else 0
        with errors.open("wb") as output:
            command = [executable(), "-c", str(conf)]
            self._process = launch(command, output=output, errors=output, outlives_us=not self._die_with_parent)

        def news() -> str:
            return log.read_bytes()[seen:].decode(errors="replace") if log.exists() else ""

        wait_until(lambda: not self.alive() or "Server is ready" in news(), START_S)
        if self.alive() and "Server is ready" in news():
            self._record()
            return None
        self.stop()
        said = (news() + errors.read_text(encoding="utf-8", errors="replace")).strip().splitlines()
        told = [line for line in said if "[FTL]" in line or "nats-server:" in line] or said or ["it says nothing"]
        return told[-1].split("] ")[-1].rstrip(".")

    def _record(self) -> None:
        record = {"pid": self.pid, "port": self.options.port, "mqtt_port": self.options.mqtt_port, "url": self.url}
        write_whole(self.folder / "broker.json", json.dumps(record) + "\n")
        monitor = {"monitor_port": self.options.monitor_port, "secret": self.options.secret}
        write_whole(self.folder / MONITOR_NAME, json.dumps(monitor) + "\n", 0o600)
        if self.options.credentials is not None:
            with suppress(OSError):  # so that a revocation finds it; a folder that is read-only here needs --pid-file there
                place = {"pid": self.pid, "conf": str(self.folder / "nats.conf")}
                write_whole(self.options.credentials / "broker.json", json.dumps(place) + "\n")


@contextmanager
def local_broker(
    folder: Path, *, port: int | None = None, mqtt_port: int | None = None, credentials: Path | None = None
) -> Iterator[Broker]:
    """A NATS server for this machine, with its store in ``folder``; it listens when the block begins, and ends with it.

    ``broker.url`` is what edge server and devices connect to. Without a port a free one is taken. With ``credentials``, a
    folder made by ``provision``, it speaks TLS to whoever has a certificate of that folder, plain text without.
    """
    options = BrokerOptions(folder / "store", port, mqtt_port=mqtt_port, credentials=credentials)
    broker = Broker.start(folder, options, die_with_parent=True)
    try:
        yield broker
    finally:
        broker.stop()


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedtwinError(f"the broker's folder {str(folder)!r} cannot be made: {error.strerror}.") from None
    return folder.resolve()


def _recorded_monitor(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / MONITOR_NAME).read_text(encoding="utf-8"))
        return {"monitor_port": int(record["monitor_port"]), "secret": str(record["secret"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _recorded(folder: Path) -> dict[str, Any] | None:
    """Whoever started one may have been killed before it was recorded: that one is known by the server's own file."""
    conf, record = folder / "nats.conf", _record(folder)
    with suppress(OSError, ValueError):
        started = int((folder / "nats.pid").read_text(encoding="utf-8"))
        if runs_with(started, str(conf)) and not (record and runs_with(record["pid"], str(conf))):
            return {"pid": started, "port": port_in(conf.read_text(encoding="utf-8"))}
    return record


def _record(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / "broker.json").read_text(encoding="utf-8"))
        return {"pid": int(record["pid"]), "port": int(record["port"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None
