"""Kafka clusters: their URL and its options, the settings that all clients share, and the mapping of errors.

``kafka://USER:PASSWORD@HOST:PORT,HOST2:PORT?partitions=8``; ``kafkas://`` for TLS.

The driver is confluent-kafka (librdkafka). Its errors are numbers, and these sets classify them:

    TRANSIENT   a broker or coordinator changes at the moment: repeat the call
    FATAL       end the subscription: wrong login, missing permission, invalid session timeout
    REFUSED     raise ``BusRefused``: a retry would fail in the same way; includes ``FATAL``
    the rest    raise ``BusUnavailable``: the cluster does not answer
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from confluent_kafka import KafkaError, KafkaException

from uttu.clients import is_raised_in, summarize_error
from uttu.clients.addresses import mask_password
from uttu.errors import BusError, BusRefused, BusUnavailable, ConfigError

_SCHEMES: Final = ("kafka", "kafkas")
_match_broker: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/]+)(?::(?P<port>\d{1,5}))?").fullmatch


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options after the ``?`` of a URL.

    - ``partitions``, ``replication``: for topics that Uttu creates. A replication of 0 uses the default of the brokers.
      A group has work for at most as many subscribers as its topics have partitions.
    - ``compression``: the codec for published messages.
    - ``timeout``: seconds to wait for an answer, also while no broker can be reached.
    - ``session``: seconds without a heartbeat after which the group's coordinator removes a subscriber and assigns its
      partitions to others. The brokers limit the value, by default to 6 seconds up to 30 minutes.
    - ``mechanism``: the SASL mechanism for the login.
    - ``cafile``, ``certfile``, ``keyfile``: PEM files for TLS.
    """

    partitions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    replication: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    timeout: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 30.0
    session: Annotated[float, msgspec.Meta(ge=1, le=1800)] = 10.0
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""


class KafkaAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL. ``brokers`` is a comma-separated list of HOST:PORT."""

    brokers: str
    tls: bool
    user: str
    password: str
    options: KafkaOptions

    def client(self) -> dict[str, Any]:
        """Return the settings of librdkafka that producers, consumers and admin clients share."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.brokers,
            "client.id": "uttu",
            "security.protocol": ("SASL_" if self.user else "") + ("SSL" if self.tls else "PLAINTEXT"),
            "reconnect.backoff.max.ms": 1000,
            "socket.keepalive.enable": True,
            "socket.timeout.ms": int(max(2.0, min(60.0, self.options.timeout)) * 1000),
            "log_level": 0,  # errors reach callers and listeners; without this librdkafka also prints to stderr
        }
        if self.user:
            settings |= {"sasl.mechanism": self.options.mechanism}
            settings |= {"sasl.username": self.user, "sasl.password": self.password}
        files = {
            "ssl.ca.location": self.options.cafile,
            "ssl.certificate.location": self.options.certfile,
            "ssl.key.location": self.options.keyfile,
        }
        return settings | {name: file for name, file in files.items() if file}


def parse_address(url: str) -> KafkaAddress:
    """Parse the URL of a Kafka cluster.

    :raises ConfigError: the URL is malformed, or an option is unknown or has an invalid value.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme.lower() not in _SCHEMES:
            raise ValueError("it must begin with kafka:// or kafkas://")
        if parts.path.strip("/") or parts.fragment:
            raise ValueError(f"leave out {parts.path or parts.fragment!r}: topics are named elsewhere")
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        values = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        options = msgspec.convert(values, KafkaOptions, strict=False)
        return KafkaAddress(
            brokers=",".join(_parse_broker(text) for text in (hosts or "localhost").split(",")),
            tls=parts.scheme.lower() == "kafkas",
            user=unquote(user),
            password=unquote(password),
            options=options,
        )
    except ValueError as error:
        raise ConfigError(f"{mask_password(url)} is not the address of a Kafka cluster: {error}") from error


def _parse_broker(text: str) -> str:
    match = _match_broker(text)
    if not match:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return f"{match['host']}:{match['port'] or 9092}"


Key = TypeVar("Key")

_RETRY_SECONDS: Final = 0.05
_DRIVER: Final = frozenset({"confluent_kafka"})

LOGIN: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)

DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)

IN_USE: Final = frozenset(
    {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_SUBSCRIBED_TO_TOPIC}
)
"""The group has subscribers, so its offsets can't be set and it can't be deleted from outside."""

FATAL: Final = (
    LOGIN
    | DENIED
    | {
        KafkaError.GROUP_MAX_SIZE_REACHED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_SESSION_TIMEOUT,
    }
)
"""Errors that end a subscription. A consumer continues after all others."""

TRANSIENT: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._TRANSPORT,
    }
)
"""Errors during a change of leader, controller or coordinator, and lost connections: retry soon."""

REFUSED: Final = (
    FATAL
    | IN_USE
    | {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_CONFIG,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Errors that a retry would not fix. All codes outside this set count as an unreachable cluster."""


def to_bus_error(error: KafkaError, brokers: str, what: str) -> BusError:
    """Return the ``BusRefused`` or ``BusUnavailable`` for an error of the driver.

    :param what: the operation that failed; the message starts with it.
    """
    if error.code() in REFUSED:
        return BusRefused(f"{what}: Kafka refuses: {error.str()}")
    return BusUnavailable(f"{what}: Kafka at {brokers} does not answer: {error.str()}")


def get_error_code(error: KafkaException) -> int:
    """Return the code of the ``KafkaError`` inside an exception."""
    return get_error(error).code()


def get_error(error: Exception) -> KafkaError:
    """Return the ``KafkaError`` inside an exception, or a new one with code ``_FAIL`` for any other exception."""
    cause = error.args[0] if error.args else None
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, summarize_error(error))


def is_driver_error(error: Exception) -> bool:
    """Return whether the driver raised ``error``.

    The C part of the driver leaves no frame in the traceback. It raises ``RuntimeError`` for a closed handle and
    ``BufferError`` for a full queue, so both types count as errors of the driver.
    """
    return isinstance(error, KafkaException | RuntimeError | BufferError) or is_raised_in(error, _DRIVER)


@contextmanager
def map_errors(brokers: str, what: str) -> Iterator[None]:
    """Map every error of the driver that is raised in the block; ``what`` is the operation, for the message.

    :raises BusRefused: a code in ``REFUSED``.
    :raises BusUnavailable: any other error of the driver.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, BusError) or not is_driver_error(error):
            raise
        raise to_bus_error(get_error(error), brokers, what) from error


async def gather_answers(call: Callable[[], Mapping[Key, Future[Any]]], seconds: float) -> dict[Key, Any]:
    """Await all futures that ``call`` returns, and repeat the call for up to ``seconds`` after a ``TRANSIENT`` error.

    :raises KafkaException: another error, or still a ``TRANSIENT`` one after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return {key: await asyncio.wrap_future(answer) for key, answer in call().items()}
        except KafkaException as error:
            if get_error_code(error) not in TRANSIENT or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_RETRY_SECONDS)
