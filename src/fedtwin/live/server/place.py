"""Where an edge server's broker is, and whether it may be there."""

from dataclasses import dataclass
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.config import BrokerOptions, check_exposure
from fedtwin.live.wire.addresses import check_address, check_free


@dataclass(frozen=True)
class Place:
    """NATS servers of the user's own; or, without any, where ours listens. ``credentials`` is a provisioned folder."""

    servers: list[str]
    listen: str | None = None
    mqtt_port: int | None = None
    credentials: Path | None = None
    insecure: bool = False

    def check(self, *, new: bool) -> None:
        """Bad addresses are said before a folder is made. A taken port may be our own broker's, unless the run is new."""
        if self.servers and self.listen:
            raise FedtwinError("--listen is for our own broker: it cannot be given with --server.")
        for url in self.servers:
            check_address(url, credentials=self.credentials, insecure=self.insecure)
        if self.servers:
            return
        options = self.broker_options(Path(), fsync=False)
        check_exposure(options, insecure=self.insecure)
        for option, port in (("--listen", options.port), ("--mqtt-port", options.mqtt_port)):
            if new and port:
                try:
                    check_free(options.host, port)
                except OSError as error:
                    raise FedtwinError(f"{option}: {options.host}:{port} cannot be listened on: {error.strerror}.") from None

    def broker_options(self, folder: Path, *, fsync: bool) -> BrokerOptions:
        """Of the broker we start ourselves, in ``folder``."""
        host, port = _host_and_port(self.listen) if self.listen is not None else ("127.0.0.1", None)
        return BrokerOptions(folder / "store", port, host, fsync=fsync, mqtt_port=self.mqtt_port, credentials=self.credentials)

    def has(self, who: str) -> bool:
        """Whether one of us may connect: in plain text, or with certificates of its own."""
        return self.credentials is None or (self.credentials / who).is_dir()

    def credentials_of(self, who: str) -> Path | None:
        """The certificates of one of us: a provisioned folder has some for each, any other is taken as it is."""
        if self.credentials is None or not self.has(who):
            return self.credentials
        return self.credentials / who


def _host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise FedtwinError(f"--listen {listen!r} is not HOST:PORT, such as 0.0.0.0:4222.")
    return host.strip("[]"), int(port)
