"""TLS: the protocols offered to hosts, the certificates accepted, and error messages.

A fetcher has two contexts, one that offers HTTP/2 and one that does not. Both resume sessions: after the first
connection to a host, :func:`store_session` stores its session in the context, and the next handshake uses it.
"""

from __future__ import annotations

import re
import ssl
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from uttu.errors import ConfigError

_PEM_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Codes of OpenSSL for certificate chains that do not end at a trusted authority.
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21, 27})
# OP_LEGACY_SERVER_CONNECT, which ssl names from Python 3.12 on. Old servers do not support RFC 5746; browsers accept
# them. It is safe because OP_NO_RENEGOTIATION is set.
_LEGACY_SERVER_CONNECT: Final = 0x4
_MAX_SESSIONS: Final = 2_000  # then the stored sessions are dropped


class _Context(ssl.SSLContext):
    """Resumes the session of a host: the handshake sends no certificates and costs a third."""

    sessions: dict[str, ssl.SSLSession]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        stored = self.sessions.get(server_hostname) if isinstance(server_hostname, str) else None
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session or stored)


class TlsContexts:
    """The contexts of a fetcher, with HTTP/2 and without.

    A new context loads all certificates, which takes 20 ms or more, so each is created on first use.

    :raises ConfigError: ``ca_file`` is not usable.
    """

    def __init__(self, *, verify: bool, ca_file: str | Path) -> None:
        self._verify = verify
        self._authorities = _read_certificates(ca_file) if ca_file else ""
        if self._authorities:
            try:
                self._create_context("http/1.1", defaults=False)
            except ssl.SSLError as error:
                raise ConfigError(f"Invalid certificate in ca_file={ca_file}: {error.reason or error}") from error

    @cached_property
    def http1(self) -> ssl.SSLContext:
        return self._create_context("http/1.1")

    @cached_property
    def http2(self) -> ssl.SSLContext:
        return self._create_context("h2", "http/1.1")

    def _create_context(self, *protocols: str, defaults: bool = True) -> ssl.SSLContext:
        context = _Context(ssl.PROTOCOL_TLS_CLIENT)
        context.sessions = {}
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | _LEGACY_SERVER_CONNECT
        context.set_alpn_protocols(protocols)
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif defaults:
            context.load_default_certs()
        if self._authorities:
            context.load_verify_locations(cadata=self._authorities)
        return context


def store_session(connection: Any) -> None:
    """Store the session, so that the next connection to this host resumes it.

    :param connection: the ``ssl_object`` of a transport.
    """
    context = connection.context
    if isinstance(context, _Context) and (name := connection.server_hostname) and (session := connection.session):
        if len(context.sessions) >= _MAX_SESSIONS:
            context.sessions.clear()
        context.sessions[name] = session


def explain_tls_error(error: ssl.SSLError, host: str) -> str:
    """The message for an error of the TLS handshake with ``host``."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.rstrip(".")
        if error.verify_code in _UNKNOWN_ISSUER:
            reason = f"UnknownIssuer ({reason})"
        return (
            f"the certificate of {host} is not valid: {reason}. If you trust this host, set ca_file to the certificate "
            "of its authority, or verify=false"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return (
        f"the TLS handshake with {host} failed: {reason}. The host may speak plain http on this port, "
        "or only TLS older than 1.2; ca_file and verify=false do not change this"
    )


def _read_certificates(file: str | Path) -> str:
    try:
        certificates: list[str] = _PEM_CERTIFICATE.findall(Path(file).read_bytes().decode("latin-1"))
    except OSError as error:
        raise ConfigError(f"Cannot read ca_file={file}: {error.strerror}") from error
    if not certificates:
        raise ConfigError(f"ca_file={file} holds no certificate in PEM format")
    return "\n".join(certificates)
