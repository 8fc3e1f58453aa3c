"""The HTTP library's errors, as Weft's.

The library sorts its errors coarsely: everything before the response's head is a connect error or
a connect timeout, a truncated body is sometimes a decode error. Its chain of causes tells what
really happened, so that is what is read here; the classes only decide where the chain is silent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyreqwest.exceptions import (
    BuilderError,
    ClientClosedError,
    DecodeError,
    DetailedPyreqwestError,
    PyreqwestError,
    RequestPanicError,
    RequestTimeoutError,
)

from weft.errors import BadResponse, FetchError, NetworkError, TLSError, TooLarge, TooSlow, UnknownHost
from weft.model import Request
from weft.model.url import host_of, hostname_of

_CONNECTING: Final = "client error (Connect)"
_READING: Final = "error reading a body from connection"
_UNRESOLVED: Final = "failed to lookup address"
_TEMPORARY: Final = "Temporary failure"
_CERTIFICATE: Final = "invalid peer certificate"
_HANDSHAKE: Final = ("handshake", "fatal alert", "corrupt message", "peer is incompatible", "peer misbehaved")
_HUNG_UP: Final = ("end of file", "unexpected EOF", "connection closed", "reset", "aborted", "Broken pipe")
_NOT_HTTP: Final = ("chunk", "invalid", "Invalid")


class Timeouts(NamedTuple):
    """Seconds: for the whole exchange, to connect, between two reads."""

    total: float
    connect: float
    read: float


def explain(error: PyreqwestError, request: Request, proxy: str, elapsed: float, timeouts: Timeouts) -> FetchError:
    """What to raise for ``error``; its message names the URL, the host and what to do."""
    url = request.url
    via = f" (through the proxy {host_of(proxy)})" if proxy else ""
    causes = _causes(error)
    # The last cause is the most exact, the first ones repeat the URL.
    reason = causes[-1] if causes else error.message
    text = "\n".join(causes)

    if isinstance(error, RequestTimeoutError):
        took = None if _CONNECTING in causes else elapsed
        return TooSlow(f"{url}{via}: {too_slow(host_of(url), took, timeouts)}")
    if isinstance(error, ClientClosedError):
        return FetchError(f"{url}: the fetcher was closed during the fetch")
    if isinstance(error, BuilderError | RequestPanicError):
        return FetchError(f"{url}{via} can't be asked for: {reason}")
    if _UNRESOLVED in text:
        # An http or https proxy resolves the host itself, so the name looked up here was the proxy's own.
        name = hostname_of(proxy if proxy.startswith("http") else url)
        if _TEMPORARY in text:
            return NetworkError(f"{url}{via}: the name {name} can't be looked up at the moment: {reason}")
        return (NetworkError if name != hostname_of(url) else UnknownHost)(
            f"{url}{via}: the name {name} does not resolve: {reason}"
        )
    if _CERTIFICATE in text:
        return TLSError(
            f"{url}{via}: the certificate of {host_of(url)} is not acceptable: "
            f"{reason.removeprefix(_CERTIFICATE).lstrip(': ')}. If you trust this host, "
            "name its authority's certificate with ca_file, or turn the check off with verify=false"
        )
    if _CONNECTING in causes and any(word in reason for word in _HANDSHAKE):
        return TLSError(
            f"{url}{via}: no TLS handshake with {host_of(url)}: {reason}. It may speak plain http on this port, "
            "or only TLS older than 1.2; ca_file and verify=false do not help against this"
        )
    if _READING in causes and any(word in reason for word in _HUNG_UP):
        return NetworkError(f"{url}{via}: {host_of(url)} hung up before the body was complete: {reason}")
    if isinstance(error, DecodeError) or (_READING in causes and any(word in reason for word in _NOT_HTTP)):
        return BadResponse(f"{url}{via}: {host_of(url)} sent something that is not a valid response: {reason}")
    if _CONNECTING not in causes and _READING not in causes and _decoding(causes):
        return BadResponse(f"{url}{via}: the body from {host_of(url)} does not decode as its headers say: {reason}")
    verb = "can't be reached" if _CONNECTING in causes else "hung up or broke the connection"
    return NetworkError(f"{url}{via}: {host_of(url)} {verb}: {reason}")


def _causes(error: PyreqwestError) -> list[str]:
    details = error.details["causes"] if isinstance(error, DetailedPyreqwestError) else None
    return [cause["message"] for cause in details or ()]


def too_slow(host: str, took: float | None, timeouts: Timeouts) -> str:
    """Which of the timeouts it was, by how long the exchange ``took``; None: there was no connection."""
    if took is None:
        return f"no connection to {host} within connect_timeout={timeouts.connect:g} s"
    if took >= timeouts.total:
        return f"{host} did not finish the response within timeout={timeouts.total:g} s in all"
    return f"{host} sent nothing for read_timeout={timeouts.read:g} s"


def too_large(url: str, limit: int, why: str) -> TooLarge:
    return TooLarge(f"{url}: the body is larger than max_body={limit} bytes: {why}")


def _decoding(causes: list[str]) -> bool:
    """The chain ends inside a decompressor: nothing but wrappers stands above the last cause."""
    return len(causes) > 1 and all("body" in cause for cause in causes[:-1])
