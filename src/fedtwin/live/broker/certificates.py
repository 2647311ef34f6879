"""The fleet's own certificate authority: EC P-256 keys, private keys readable by their owner only."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise FedtwinError("certificates need the library cryptography: pip install 'fedtwin[live]'.") from None

AUTHORITY_DAYS = 3650
PRIVATE = 0o700
CLOCKS_APART = timedelta(minutes=5)


@dataclass(frozen=True)
class Issued:
    """A certificate that was written: the user's name in it, its serial number and its end."""

    user: str
    serial: str
    expires: datetime


class Authority:
    """Signs certificates. Its key, ``ca.key``, is needed for that only: keep it off the edge server and the devices."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key

    @classmethod
    def open(cls, folder: Path, run: str, now: datetime) -> "Authority":
        """The authority of this folder; made, if there is none."""
        certificate_file, key_file = folder / "ca.pem", folder / "ca.key"
        if not certificate_file.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _authority_certificate(key, run, now)
            write_whole(key_file, _pem(key), 0o600)
            write_whole(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
            return cls(certificate, key)
        try:
            certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
            loaded = serialization.load_pem_private_key(key_file.read_bytes(), None)
        except (OSError, ValueError) as error:
            raise FedtwinError(
                f"the authority in {str(folder)!r} cannot be used, ca.pem and ca.key are needed: {error}."
            ) from None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != certificate.public_key():
            raise FedtwinError(f"ca.key in {str(folder)!r} is not the key of ca.pem.")
        return cls(certificate, loaded)

    def issue(self, folder: Path, now: datetime, days: float, *, user: str = "", hosts: list[str] | None = None) -> Issued:
        """Writes ``ca.pem``, ``cert.pem`` and ``key.pem``: a server's with its host names, or a user's."""
        key, serial = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
        user_name = f"{user}@{serial:x}.fedtwin" if user else ""
        expires = min(now + timedelta(days=days), self._certificate.not_valid_after_utc).replace(microsecond=0)
        names = [_host(host) for host in hosts or []] or [x509.RFC822Name(user_name)]
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named(user or "broker"))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(now - CLOCKS_APART)
            .not_valid_after(expires)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        make_private(folder)
        write_whole(folder / "key.pem", _pem(key), 0o600)
        write_whole(folder / "cert.pem", certificate.public_bytes(serialization.Encoding.PEM))
        write_whole(folder / "ca.pem", self._certificate.public_bytes(serialization.Encoding.PEM))
        return Issued(user_name, f"{serial:x}", expires.astimezone(UTC))


def make_private(folder: Path) -> None:
    """A folder for its owner only, whatever the umask is."""
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    folder.chmod(PRIVATE)


def _authority_certificate(key: ec.EllipticCurvePrivateKey, run: str, now: datetime) -> x509.Certificate:
    name = _named(f"fedtwin {run[:50]}")
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_APART)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
