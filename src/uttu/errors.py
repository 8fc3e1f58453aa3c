"""The error tree.

    UttuError
    ├── ConfigError            a setting or uttu.toml is wrong                       exit 3
    │   ├── UsageError         a flag is wrong, as it was typed                      exit 2
    │   └── SpiderError        the spider file can't be loaded or used               exit 3
    ├── StoreError             the crawl's state can't be opened, read or written    exit 4
    │   ├── RefusedData        the store does not accept a value                     exit 4
    │   ├── StoreTooNew        the store was written by a newer Uttu                 exit 4
    │   └── ItemsTrimmed       the requested items have been removed                 exit 4
    ├── StartError             the spider's start function raised                    exit 1
    ├── SinkError              an output can't be written                            exit 1
    ├── BusError               a message broker can't be used                        exit 4
    │   ├── BusUnavailable     the broker can't be reached                           exit 4
    │   ├── BusRefused         the broker refuses a login, a name or a size          exit 4
    │   └── Unsupported        the broker lacks a capability                         exit 4
    ├── ClusterError           a coordinator can't be used, or refuses a request     exit 4
    │   ├── ClusterUnavailable     it can't be reached, or does not let this process in
    │   ├── ConnectionSuspended    the connection broke during a request
    │   ├── SessionLost            the session ended, and with it all that it held
    │   ├── NoNode, NodeExists, NotEmpty, WrongVersion
    │   ├── LockTimeout, LockLost
    │   └── Refused                no permission, a value that is too large, a path that is not one
    └── FetchError             no usable response
        ├── NetworkError       the host can't be reached, or closed the connection
        │   ├── UnknownHost    its name does not resolve
        │   └── TLSError       its certificate or handshake is not acceptable
        ├── PrivateHost        its name resolves to a private address
        ├── TooSlow            a timeout: to connect, between bytes, or in total
        ├── TooLarge           the body exceeds the limit
        └── BadResponse        the response is not HTTP, or does not match its headers

Messages say what happened, to what, and what to do about it. Errors of drivers are mapped to these at the edge, with
``raise … from``.
"""

from __future__ import annotations


class UttuError(Exception):
    """Base class of all errors that Uttu raises on purpose."""


class ConfigError(UttuError):
    """A setting or the configuration file is wrong."""


class UsageError(ConfigError):
    """A flag, an argument or its value is wrong."""


class SpiderError(ConfigError):
    """The spider file can't be loaded, or does not hold exactly one spider."""


class StartError(UttuError):
    """The spider's start function raised. ``reason`` is the message in one line."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class StoreError(UttuError):
    """The crawl's state can't be opened, read or written."""


class RefusedData(StoreError):
    """The store works, but does not accept a value: it is too large, or can't be encoded."""


class StoreTooNew(StoreError):
    """The crawl's state was written by a newer version of Uttu."""


class ItemsTrimmed(StoreError):
    """The requested items have been removed from the store, after all outputs of the crawl had them."""


class SinkError(UttuError):
    """An output can't be written."""


class BusError(UttuError):
    """A message broker can't be used."""


class BusUnavailable(BusError):
    """The broker can't be reached; the message says what was tried."""


class BusRefused(BusError):
    """The broker refuses a login, a name or a size."""


class Unsupported(BusError):
    """The broker lacks a capability; the message names it."""


class ClusterError(UttuError):
    """A coordinator can't be used, or refuses what it is asked for."""


class ClusterUnavailable(ClusterError):
    """The coordinator can't be reached, or does not let this process in."""


class ConnectionSuspended(ClusterError):
    """The connection broke during a request: it may have been carried out or not."""


class SessionLost(ClusterError):
    """The session ended, and with it all that it held."""


class NoNode(ClusterError):
    """There is no node at this path."""


class NodeExists(ClusterError):
    """There is a node at this path already."""


class NotEmpty(ClusterError):
    """The node has children."""


class WrongVersion(ClusterError):
    """The node has another version than the one demanded: somebody else has changed it."""


class Refused(ClusterError):
    """The coordinator refuses a request: no permission, a value that is too large, children of an ephemeral node."""


class LockTimeout(ClusterError):
    """The lock was not free in time."""


class LockLost(ClusterError):
    """The lock is no longer held: the session ended, or the lock's own time."""


class FetchError(UttuError):
    """A fetch gave no usable response. ``kind`` is the word used in stats and dead letters."""

    kind = "fetch"


class NetworkError(FetchError):
    """The host can't be reached, refused the connection, or closed it."""

    kind = "network"


class UnknownHost(NetworkError):
    """The host's name does not resolve."""

    kind = "dns"


class PrivateHost(FetchError):
    """The host's name resolves to a private address, and the crawl did not start there."""

    kind = "scope"


class TLSError(NetworkError):
    """The host's certificate or handshake is not acceptable."""

    kind = "tls"


class TooSlow(FetchError):
    """The host was too slow: to connect, between two reads, or in total."""

    kind = "timeout"


class TooLarge(FetchError):
    """The body exceeds the size limit; reading stopped there."""

    kind = "too_large"


class BadResponse(FetchError):
    """The response is not HTTP, or its body can't be decoded as its headers say."""

    kind = "bad_response"


FAILED, USAGE, CONFIG, STORE, BROKEN = 1, 2, 3, 4, 5


BY_SIGNAL = 128


def exit_code(error: UttuError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, ConfigError):
        return CONFIG
    if isinstance(error, StoreError | BusError | ClusterError):
        return STORE
    return FAILED
