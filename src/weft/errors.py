"""The error tree.

    WeftError
    ├── ConfigError            a setting or weft.toml is wrong                       exit 3
    │   ├── UsageError         a flag is wrong, as it was typed                      exit 2
    │   └── SpiderError        the spider file can't be loaded or used               exit 3
    ├── StoreError             the crawl's state can't be opened, read or written    exit 4
    │   └── StoreTooNew        it was made by a newer Weft                           exit 4
    ├── StartError             the spider's start function raised                    exit 1
    ├── SinkError              an output can't be written                            exit 1
    ├── BusError               a message broker can't be used                        exit 4
    │   ├── BusUnavailable     it can't be reached                                   exit 4
    │   ├── BusRefused         it says no: to the login, a name, a size              exit 4
    │   └── Unsupported        it lacks what was asked for                           exit 4
    └── FetchError             a response could not be had
        ├── NetworkError       the host can't be reached, or hung up
        │   ├── UnknownHost    its name does not resolve
        │   └── TLSError       its certificate or handshake is not acceptable
        ├── TooSlow            it was too slow: to connect, between bytes, or in all
        ├── TooLarge           the body went past the limit
        └── BadResponse        what it sent is not HTTP, or not what its headers say

Messages say what happened, to what, and what to do about it. Errors of drivers are mapped to
these where they enter, with ``raise … from``.
"""

from __future__ import annotations


class WeftError(Exception):
    """Root of everything Weft raises on purpose."""


class ConfigError(WeftError):
    """A setting or the configuration file is wrong."""


class UsageError(ConfigError):
    """What was typed is wrong: a flag, or its value."""


class SpiderError(ConfigError):
    """The spider file can't be loaded, or does not hold exactly one spider."""


class StartError(WeftError):
    """The spider's start function raised. ``reason`` is one line of what the message says at length."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class StoreError(WeftError):
    """The crawl's state can't be opened, read or written."""


class StoreTooNew(StoreError):
    """The crawl's state was written by a newer version of Weft."""


class SinkError(WeftError):
    """An output can't be written."""


class BusError(WeftError):
    """A message broker can't be used."""


class BusUnavailable(BusError):
    """The broker can't be reached; the message says what was tried."""


class BusRefused(BusError):
    """The broker says no: to the login, to a name, to a size."""


class Unsupported(BusError):
    """The broker lacks a capability; the message names it."""


class FetchError(WeftError):
    """A response could not be had. ``kind`` is the word used in stats and dead letters."""

    kind = "fetch"


class NetworkError(FetchError):
    """The host can't be reached, refused, or hung up."""

    kind = "network"


class UnknownHost(NetworkError):
    """The host's name does not resolve."""

    kind = "dns"


class TLSError(NetworkError):
    """The host's certificate or handshake is not acceptable."""

    kind = "tls"


class TooSlow(FetchError):
    """The host was too slow: to connect, between two reads, or in all."""

    kind = "timeout"


class TooLarge(FetchError):
    """The body went past the size limit; reading was stopped there."""

    kind = "too_large"


class BadResponse(FetchError):
    """The answer is not HTTP, or its body does not decode as its headers say."""

    kind = "bad_response"
