"""An endpoint of the API, made of one function of :mod:`uttu.api.data`.

The signature of the function is the contract. Names in the path are path parameters. Of the others, a GET takes query
parameters and a POST the fields of a JSON object; a parameter whose type is a struct stands for all its fields. ``by``
is filled with the user's name. Everything is converted to the annotated types; unknown names are refused.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from uttu.api.accounts import Role
from uttu.api.context import Context
from uttu.api.problems import BadParameters, BodyTooLarge, BodyTooSlow, MalformedBody

PREFIX: Final = "/api/v1"
MOST_BODY_BYTES: Final = 1_000_000
BODY_SECONDS: Final = 10.0
# Programs expect these at the top.
_AT_ROOT: Final = ("/healthz", "/metrics")
_PATH_NAME: Final = re.compile(r"{(\w+)}")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint at ``path``. ``params`` has the path and query parameters, ``body`` the fields of the JSON object.

    ``role`` None is for endpoints that need no login. ``fixed`` are arguments that the path decides. ``respond`` is set
    instead of ``call`` if the response is not JSON, or sets cookies; ``media_type`` is the type of its response.
    """

    method: str
    path: str
    role: Role | None
    name: str
    summary: str
    params: type[msgspec.Struct]
    body: type[msgspec.Struct] | None
    result: Any = None
    call: Callable[..., Awaitable[Any]] | None = None
    respond: Callable[[Request, Context, Any], Awaitable[Response]] | None = None
    media_type: str = "application/json"
    fixed: dict[str, Any] = {}
    structs: dict[str, type[msgspec.Struct]] = {}
    """Parameters of ``call`` that are structs."""
    takes_by: bool = False

    @property
    def path_names(self) -> list[str]:
        return _PATH_NAME.findall(self.path)


def make_endpoint(
    method: str,
    path: str,
    role: Role,
    call: Callable[..., Awaitable[Any]],
    name: str = "",
    summary: str = "",
    **fixed: Any,
) -> Endpoint:
    """Make an endpoint of a function.

    :param name: Of the operation; that of the function without it.
    :param summary: One line; the first of the function's docstring without it.
    :param fixed: Arguments that a client does not give.
    """
    hints = get_type_hints(call, include_extras=True)
    in_path = _PATH_NAME.findall(path)
    params: list[Any] = []
    fields: list[Any] = []
    structs: dict[str, type[msgspec.Struct]] = {}
    takes_by = False
    for parameter in list(inspect.signature(call).parameters.values())[1:]:
        kind = hints[parameter.name]
        if parameter.name == "by":
            takes_by = True
        elif parameter.name in fixed:
            continue
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            structs[parameter.name] = kind
            own = [_list_field(each) for each in msgspec.structs.fields(kind)]
            (params if method == "GET" else fields).extend(own)
        else:
            default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
            field = (parameter.name, kind, *default)
            (params if parameter.name in in_path or method == "GET" else fields).append(field)
    name = name or call.__name__
    title = "".join(word.title() for word in name.split("_"))
    return Endpoint(
        method=method,
        path=PREFIX + path,
        role=role,
        name=name,
        summary=summary or (inspect.getdoc(call) or "").partition("\n")[0],
        params=_make_struct(f"{title}Parameters", params),
        body=_make_struct(f"{title}Body", fields) if method == "POST" else None,
        result=hints["return"],
        call=call,
        fixed=fixed,
        structs=structs,
        takes_by=takes_by,
    )


# Limits of fields that structs of operations leave open: 0 would mean all.
_LIMITS: Final[dict[str, Any]] = {"limit": msgspec.Meta(ge=1, le=1000)}


def _list_field(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    kind = Annotated[field.type, _LIMITS[field.name]] if field.name in _LIMITS else field.type
    if field.default is not msgspec.NODEFAULT:
        return (field.name, kind, field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return (field.name, kind, msgspec.field(default_factory=field.default_factory))
    return (field.name, kind)


def _make_struct(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, kw_only=True, frozen=True, forbid_unknown_fields=True, module=__name__)


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For endpoints that take none."""


def make_raw_endpoint(
    method: str,
    path: str,
    role: Role | None,
    respond: Callable[[Request, Context, Any], Awaitable[Response]],
    media_type: str,
    params: type[msgspec.Struct] | None = None,
    body: type[msgspec.Struct] | None = None,
    result: Any = None,
) -> Endpoint:
    """Make an endpoint whose function makes the response itself. It gets the request, the context and the body."""
    return Endpoint(
        method=method,
        path=path if path in _AT_ROOT else PREFIX + path,
        role=role,
        name=respond.__name__,
        summary=(inspect.getdoc(respond) or "").partition("\n")[0],
        params=params or NoParameters,
        body=body,
        result=result,
        respond=respond,
        media_type=media_type,
    )


async def run_endpoint(endpoint: Endpoint, context: Context, request: Request, by: str) -> Response:
    """Parse a request, call the function, and encode its result.

    :raises RequestRefused: a parameter or the body is wrong.
    :raises UttuError: the function failed.
    """
    params = parse_params(endpoint, request)
    body = await read_json(request, endpoint.body) if endpoint.body is not None else None
    if endpoint.respond is not None:
        return await endpoint.respond(request, context, body if body is not None else params)
    assert endpoint.call is not None
    given = msgspec.structs.asdict(params) | ({} if body is None else msgspec.structs.asdict(body))
    request.state.target = describe_target(given)
    for name, kind in endpoint.structs.items():
        own = {field: given.pop(field) for field in kind.__struct_fields__}
        given[name] = kind(**own)
    if endpoint.takes_by:
        given["by"] = by
    result = await endpoint.call(context, **given, **endpoint.fixed)
    return Response(msgspec.json.encode(result), media_type="application/json")


def parse_params(endpoint: Endpoint, request: Request) -> msgspec.Struct:
    """:raises BadParameters: a parameter is wrong, unknown, or given twice."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given or name in request.path_params:
            raise BadParameters(f"The parameter {name!r:.100} is given twice")
        given[name] = value
    try:
        found: msgspec.Struct = msgspec.convert(given | request.path_params, endpoint.params, strict=False)
    except msgspec.ValidationError as error:
        raise BadParameters(f"{error}; the parameters are: {', '.join(endpoint.params.__struct_fields__)}") from error
    return found


async def read_body(request: Request) -> bytes:
    """Read a body of at most ``MOST_BODY_BYTES`` within ``BODY_SECONDS``.

    :raises BodyTooLarge: it is larger.
    :raises BodyTooSlow: it did not arrive in time.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MOST_BODY_BYTES:
        raise BodyTooLarge(f"The body is larger than {MOST_BODY_BYTES:,} bytes", {"Connection": "close"})
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY_BYTES:
                    raise BodyTooLarge(f"The body is larger than {MOST_BODY_BYTES:,} bytes", {"Connection": "close"})
    except TimeoutError:
        raise BodyTooSlow(f"The body did not arrive within {BODY_SECONDS:g} seconds", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise MalformedBody("The connection ended before the body") from None
    return bytes(body)


async def read_json(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Read a JSON object. An empty body counts as an object without fields.

    :raises RequestRefused: it is not one of this type.
    """
    body = await read_body(request)
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and declared != "application/json":
        raise MalformedBody("Send the body as Content-Type: application/json")
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__) or "none"
        raise BadParameters(f"{error}; the fields are: {known}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBody(f"The body is not JSON: {error}") from error


# Fields that may hold secrets or much data.
_HIDDEN: Final = frozenset(
    {"password", "old", "payload", "headers", "settings", "arguments", "kwargs", "args", "table"}
)


def describe_target(given: Mapping[str, Any]) -> str:
    """The parameters of a request for the audit log, without those that may hold secrets."""
    shown = {
        name: f"{len(value)} entries" if isinstance(value, list | tuple) else value
        for name, value in given.items()
        if name not in _HIDDEN and value not in ("", None, False, [], {}, ())
    }
    return " ".join(f"{name}={value}" for name, value in shown.items())
