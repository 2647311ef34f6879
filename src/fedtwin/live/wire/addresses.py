"""Which addresses may be spoken to, with which certificates, and what a refusal means in words."""

import os
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from fedtwin.errors import FedtwinError

ALERTS = {
    "ALERT_UNKNOWN_CA": "the server does not know who issued this certificate",
    "ALERT_CERTIFICATE_EXPIRED": "this certificate has expired",
    "ALERT_CERTIFICATE_UNKNOWN": "the server does not accept this certificate",
    "ALERT_BAD_CERTIFICATE": "the server does not accept this certificate",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS",
}


def is_loopback(host: str) -> bool:
    """``localhost``, 127.0.0.0/8 and ::1. Other names are not looked up: what they mean may change."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(url: str, *, credentials: Path | None, insecure: bool) -> None:
    """An address that may be spoken to: with credentials any, without them this machine only, unless the user insists."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("nats", "tls") or parts.username or parts.path.strip("/"):
        raise FedtwinError(f"server address {url!r} is not of the form nats://HOST:PORT or tls://HOST:PORT.")
    if credentials is not None:
        return
    if parts.scheme == "tls":
        raise FedtwinError(f"server address {url!r} asks for TLS: give --credentials, a folder made by fedtwin provision.")
    if not is_loopback(host) and not insecure:
        raise FedtwinError(
            f"server address {url!r} is another machine, where TLS is required: give --credentials, "
            "or say --insecure to send everything in plain text."
        )


def check_free(host: str, port: int) -> None:
    """An ``OSError`` (or ``OverflowError``) where nobody could listen there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def ssl_context(credentials: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, the server's name checked, our own certificate shown."""
    for name in ("ca.pem", "cert.pem", "key.pem"):
        if not os.access(credentials / name, os.R_OK):
            raise FedtwinError(f"credentials {str(credentials)!r} lack a readable {name}: make them with fedtwin provision.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(credentials / "ca.pem")
        context.load_cert_chain(credentials / "cert.pem", credentials / "key.pem")
    except (ssl.SSLError, OSError) as error:
        raise FedtwinError(f"credentials {str(credentials)!r} cannot be used: {reason_of(error)}.") from None
    return context


def reason_of(error: BaseException) -> str:
    """What went wrong, in a few words without a full stop."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not accepted, {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        for alert, meaning in ALERTS.items():
            if alert in (error.reason or ""):
                return meaning
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).removeprefix("nats: ").strip("'. ") or type(error).__name__
