"""A certificate authority of the tests, and the certificates that it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


class Authority:
    """Files in one folder: `ca.pem`, and a certificate and a key for each signed name."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        folder.mkdir()
        self.ca = folder / "ca.pem"
        ca = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self._write(self.ca, ca)

    def sign(
        self, name: str, *, hosts: tuple[str, ...] = (), addresses: tuple[str, ...] = (), expired: bool = False
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = self._builder(subject, key, expired=expired)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self._write(pair.cert, builder)
        kinds = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        pair.key.write_bytes(key.private_bytes(*kinds, serialization.NoEncryption()))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 9 * _DAY)
            .not_valid_after(now - _DAY if expired else now + _DAY)
        )

    def _write(self, path: Path, builder: x509.CertificateBuilder) -> None:
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
