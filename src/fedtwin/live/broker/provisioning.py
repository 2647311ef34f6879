"""Certificates of a fleet and what each of its members may say: made, extended and revoked. docs/security.md explains it.

The broker takes the user's name from the certificate (``verify_and_map``): the e-mail address among its alternative names,
``press-1@SERIAL.fedtwin`` for the device press-1. The serial number is in the name, so a certificate that was revoked or
replaced stays worthless when the same device gets a new one.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.live.broker.certificates import Authority, Issued, make_private
from fedtwin.live.broker.permissions import ROLES, in_all, permissions_of, role_permissions, users_text
from fedtwin.live.wire.protocol import NAME
from fedtwin.processes import runs_with
from fedtwin.records.lock import Lock

__all__ = ["ROLES", "fleet_of", "permissions_of", "provision", "revoke"]
HOME = ("localhost", "127.0.0.1", "::1")
MOST_DAYS = 3650
RENEW_DAYS = 30


def provision(
    folder: Path,
    *,
    run: str,
    server_names: list[str],
    devices: list[str],
    days: float = 365,
    _now: datetime | None = None,
) -> dict[str, Any]:
    """Makes a fleet's folder, or adds to it what is missing; gives what ``fleet.json`` says.

    What is valid stays as it is. A new certificate is issued to whoever has none, was revoked, or has one that ends within 30
    days (or half of ``days``, if that is less); the one before is worthless from then on. A running broker reloads its users.
    Another ``run`` than before is one more: all members may take part in it, too.
    """
    _check(run, server_names, devices, days)
    _make(folder)
    lock = Lock(folder / ".lock")
    try:
        fleet = _read(folder) or {"run": run, "server_names": [], "roles": {}, "devices": {}}
        if run not in runs_of(fleet):
            fleet["more_runs"] = [*fleet.get("more_runs", []), run]
        now = _now or datetime.now(UTC)
        authority = Authority.open(folder, run, now)
        late = now + timedelta(days=min(RENEW_DAYS, days / 2))
        names = [*fleet["server_names"], *(name for name in server_names if name not in fleet["server_names"])]
        if names != fleet["server_names"] or _is_due(fleet["roles"].get("server"), late):
            issued = authority.issue(
                folder / "server", now, days, hosts=[*names, *(home for home in HOME if home not in names)]
            )
            fleet["roles"]["server"], fleet["server_names"] = _entry(issued), names
        for role in ROLES:
            if _is_due(fleet["roles"].get(role), late):
                fleet["roles"][role] = _entry(authority.issue(folder / role, now, days, user=role))
        for device in devices:
            if _is_due(fleet["devices"].get(device), late):
                fleet["devices"][device] = _entry(authority.issue(folder / "devices" / device, now, days, user=device))
        _save(folder, fleet)
    finally:
        lock.release()
    _tell_broker(folder, None)
    return fleet


def revoke(folder: Path, device: str, *, pid_file: Path | None = None, cut: bool = False) -> bool:
    """Takes a device's rights away. Gives whether a running broker was told, which cuts its connection at once.

    The broker is the one that last ran with this folder, or the one of ``pid_file``. The fleet's private key is not needed.
    What the edge server has ``cut`` it may ``reinstate``; what a person has revoked stays so.
    """
    with _changed(folder, device) as entry:
        entry["cut"] = cut and (not entry["revoked"] or entry.get("cut", False))
        entry["revoked"] = True
    return _tell_broker(folder, pid_file)


def reinstate(folder: Path, device: str) -> bool:
    """Gives a device that the edge server has cut its rights back: its certificate is good again. False where nobody has
    taken them away.
    """
    entry = fleet_of(folder)["devices"].get(device)
    if entry is None or not entry["revoked"]:
        return False
    if not entry.get("cut"):
        raise FedtwinError(f"device {device!r} was revoked by a person: provision it anew before it is released.")
    with _changed(folder, device) as entry:
        entry["revoked"] = entry["cut"] = False
    _tell_broker(folder, None)
    return True


@contextmanager
def _changed(folder: Path, device: str) -> Iterator[dict[str, Any]]:
    """The entry of a device, which is written when the block ends."""
    fleet_of(folder)
    lock = Lock(folder / ".lock")
    try:
        fleet = fleet_of(folder)
        if device not in fleet["devices"]:
            known = ", ".join(sorted(fleet["devices"])) or "none"
            raise FedtwinError(f"device {device!r} is not in {str(folder)!r}: there are {known}.")
        yield fleet["devices"][device]
        _save(folder, fleet)
    finally:
        lock.release()


def fleet_of(folder: Path) -> dict[str, Any]:
    """What exists: the run, the server's names, and for every member its user name, serial number, end and whether revoked."""
    fleet = _read(folder)
    if fleet is None:
        raise FedtwinError(f"{str(folder)!r} has no fleet.json: make it with fedtwin provision DIR --server-name HOST.")
    return fleet


def runs_of(fleet: dict[str, Any]) -> list[str]:
    """All runs that its members may take part in."""
    return [fleet["run"], *fleet.get("more_runs", [])]


def _check(run: str, server_names: list[str], devices: list[str], days: float) -> None:
    for what, names in (("run", [run]), ("device", devices)):
        for name in names:
            if not re.fullmatch(NAME, name):
                raise FedtwinError(f"{what} {name!r} is not a name of 1 to 64 letters, digits, - and _.")
    for device in devices:
        if device in ROLES:
            raise FedtwinError(f"device {device!r} has the name of a role: choose another.")
    for name in server_names:
        if not re.fullmatch(r"[A-Za-z0-9_.:*-]{1,253}", name):
            raise FedtwinError(f"server name {name!r} is neither a host name nor an address.")
    if not 0 < days <= MOST_DAYS:
        raise FedtwinError(f"days {days:g} is not above 0 and at most {MOST_DAYS}.")


def _make(folder: Path) -> None:
    """For its owner only; a folder that was there for something else stays as it is, all that is made in it is private."""
    try:
        if not folder.exists() or (folder / "fleet.json").exists():
            make_private(folder)
        for path in (folder / "devices", *(folder / role for role in ("server", *ROLES))):
            make_private(path)
        for path in (folder / "devices").iterdir():
            if path.is_dir():
                make_private(path)
    except OSError as error:
        raise FedtwinError(f"{str(folder)!r} cannot be made: {error.strerror}.") from None


def _is_due(entry: dict[str, Any] | None, late: datetime) -> bool:
    return entry is None or entry["revoked"] or datetime.fromisoformat(entry["expires"]) < late


def _entry(issued: Issued) -> dict[str, Any]:
    return {
        "user": issued.user,
        "serial": issued.serial,
        "expires": issued.expires.isoformat(timespec="seconds"),
        "revoked": False,
    }


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        fleet: dict[str, Any] = json.loads((folder / "fleet.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FedtwinError(f"{str(folder / 'fleet.json')!r} cannot be read: {error}.") from None
    return fleet


def _save(folder: Path, fleet: dict[str, Any]) -> None:
    runs = runs_of(fleet)
    users = {
        fleet["roles"][role]["user"]: in_all([role_permissions(role, run) for run in runs])
        for role in ROLES
        if role in fleet["roles"]
    }
    users |= {
        entry["user"]: in_all([permissions_of(name, run) for run in runs])
        for name, entry in fleet["devices"].items()
        if not entry["revoked"]
    }
    write_whole(folder / "fleet.json", json.dumps(fleet, indent=2) + "\n")
    write_whole(folder / "users.conf", users_text(users))


def _tell_broker(folder: Path, pid_file: Path | None) -> bool:
    """A broker that is told (SIGHUP) reads its users and certificates anew."""
    try:
        if pid_file is None:
            place = json.loads((folder / "broker.json").read_text(encoding="utf-8"))
            pid, argument = int(place["pid"]), str(place["conf"])
        else:
            pid, argument = int(pid_file.read_text(encoding="utf-8")), "nats-server"
    except (OSError, ValueError, KeyError, TypeError):
        if pid_file is None:
            return False
        raise FedtwinError(
            f"pid file {str(pid_file)!r} cannot be read: name the nats.pid of the edge server's folder."
        ) from None
    if not runs_with(pid, argument):
        return False
    try:
        os.kill(pid, signal.SIGHUP)
    except PermissionError:
        raise FedtwinError(f"the broker, process {pid}, belongs to another user: run this as that user, or as root.") from None
    return True
