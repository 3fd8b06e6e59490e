"""A throw-away authority, and one certificate by it for 127.0.0.1, good for servers and clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)


class Certificates:
    """Names of three PEM files: `ca`, `cert`, `key`."""

    def __init__(self, folder: Path) -> None:
        authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca = self._builder("authority", "authority", authority.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True)  # fmt: skip
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        leaf = (
            self._builder("here", "authority", own.public_key())
            .add_extension(x509.SubjectAlternativeName(here), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        )
        pem = serialization.Encoding.PEM
        secret = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.ca = self._write(folder / "authority.pem", ca.sign(authority, hashes.SHA256()).public_bytes(pem))
        self.cert = self._write(folder / "here.pem", leaf.sign(authority, hashes.SHA256()).public_bytes(pem))
        self.key = self._write(folder / "here.key", secret)

    @staticmethod
    def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    @staticmethod
    def _write(path: Path, content: bytes) -> str:
        path.write_bytes(content)
        return str(path)
