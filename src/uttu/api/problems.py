"""Errors as RFC 9457 documents (``application/problem+json``).

The status of each class of Uttu's error tree is decided here and nowhere else. ``type`` names the class, so a client
can tell a store that is away from one that does not accept a value; ``detail`` is the message that the command line
prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from uttu.errors import (
    BusError,
    BusRefused,
    BusUnavailable,
    ConfigError,
    FetchError,
    ItemsTrimmed,
    RefusedData,
    SinkError,
    StartError,
    StoreError,
    StoreTooNew,
    Unsupported,
    UsageError,
    UttuError,
)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 2


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error of the API, as RFC 9457 defines it. ``detail`` says what happened and what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    """The path of the request."""


class RequestRefused(UttuError):
    """A request that the API does not carry out. ``status`` is the HTTP status, ``headers`` go with the response."""

    status: int = 400

    def __init__(self, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.headers = dict(headers or {})


class BadParameters(RequestRefused):
    """A parameter or a field of the body is wrong or unknown."""

    status = 422


class MalformedBody(RequestRefused):
    """The body is not JSON, or its type is not accepted."""

    status = 400


class BodyTooLarge(RequestRefused):
    """The body exceeds the limit."""

    status = 413


class BodyTooSlow(RequestRefused):
    """The body did not arrive in time."""

    status = 408


class Unauthenticated(RequestRefused):
    """The request has no valid session or token."""

    status = 401

    def __init__(self, detail: str) -> None:
        super().__init__(detail, {"WWW-Authenticate": 'Bearer realm="uttu"'})


class Forbidden(RequestRefused):
    """The user's role does not allow it, or the request may come from another site."""

    status = 403


class NotFound(RequestRefused):
    """There is no such store, crawl, broker or page."""

    status = 404


class StillSearching(RequestRefused):
    """A search takes long. It goes on, and the same request has its result later."""

    status = 503

    def __init__(self) -> None:
        super().__init__("Still searching. Ask again in some seconds", {"Retry-After": str(RETRY_SECONDS)})


class WrongHost(RequestRefused):
    """The Host header names another server."""

    status = 421


class TooManyAttempts(RequestRefused):
    """Too many failed logins."""

    status = 429


class Unavailable(RequestRefused):
    """A store or broker is away, or did not answer in time."""

    status = 503

    def __init__(self, detail: str) -> None:
        super().__init__(detail, {"Retry-After": str(RETRY_SECONDS)})


# The first class that an error belongs to decides.
_STATUSES: Final[tuple[tuple[type[UttuError], int], ...]] = (
    (UsageError, 422),
    (ConfigError, 422),
    (ItemsTrimmed, 410),
    (RefusedData, 422),
    (StoreTooNew, 409),
    (StoreError, 503),
    (BusUnavailable, 503),
    (BusRefused, 409),
    (Unsupported, 501),
    (BusError, 503),
    (SinkError, 409),
    (StartError, 409),
    (FetchError, 502),
    (UttuError, 409),
)


def find_status(error: UttuError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, RequestRefused):
        return error.status
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


def describe_problem(error: Exception, instance: str = "") -> tuple[ErrorDocument, dict[str, str]]:
    """The document of an error, and headers for the response. Errors that are not Uttu's show nothing of their text."""
    if not isinstance(error, UttuError):
        return make_problem(500, "Uttu failed; its log says why", instance), {}
    status = find_status(error)
    headers = error.headers if isinstance(error, RequestRefused) else {}
    if status == 503:
        headers = {"Retry-After": str(RETRY_SECONDS)} | headers
    found = make_problem(status, str(error), instance)
    return msgspec.structs.replace(found, type=f"urn:uttu:problem:{_name_class(type(error))}"), headers


def make_problem(status: int, detail: str = "", instance: str = "") -> ErrorDocument:
    return ErrorDocument(title=HTTPStatus(status).phrase, status=status, detail=detail, instance=instance)


def _name_class(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def problem_response(problem: ErrorDocument, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)
