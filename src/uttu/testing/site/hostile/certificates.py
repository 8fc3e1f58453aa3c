"""Certificates for hostile hosts, good and bad, generated at start.

The ``cryptography`` package is a development dependency, so it is imported when the first certificate is needed.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from uttu.testing.site.hostile.model import Certificate


class Authority:
    """Signs certificates. Its own certificate is ``authority.pem`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "authority.pem"
        self._folder = folder

    def context(self, certificate: Certificate, address: str, alpn: tuple[str, ...]) -> ssl.SSLContext | None:
        """The TLS context of a server at ``address`` with such a certificate. None for a server without TLS."""
        if certificate in ("", "none"):
            return None
        days = {"expired": (-60, -30), "future": (30, 60)}.get(certificate, (-30, 30))
        host = "127.1.2.3" if certificate == "other-host" else address
        signer = self._stranger if certificate == "unknown-authority" else self._own
        file = self._folder / f"{address}.pem"
        file.write_bytes(_pem(*_sign(host, None if certificate == "self-signed" else signer, days)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        context.set_alpn_protocols(list(alpn))
        return context

    @cached_property
    def _own(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        from cryptography.hazmat.primitives.serialization import Encoding

        made = _sign("Test Authority", None, (-30, 30), authority=True)
        self.file.write_bytes(made[0].public_bytes(Encoding.PEM))
        return made

    @cached_property
    def _stranger(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        return _sign("Another Authority", None, (-30, 30), authority=True)


def _sign(
    host: str,
    signer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    days: tuple[int, int],
    *,
    authority: bool = False,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate and its key, valid between the two ``days`` from now. Without a ``signer`` it is self-signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    issuer, issuer_key = (subject, key) if signer is None else (signer[0].subject, signer[1])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256()), key


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return certificate.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
