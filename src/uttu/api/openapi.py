"""The OpenAPI 3.1 document, generated from the table of endpoints and the types of their functions."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final

import msgspec

from uttu import __version__
from uttu.api.endpoints import PREFIX, Endpoint
from uttu.api.problems import MEDIA_TYPE, ErrorDocument

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = {"$ref": "#/components/schemas/ErrorDocument"}


def describe_api(endpoints: Sequence[Endpoint], cookie: str) -> dict[str, Any]:
    """The OpenAPI document of the endpoints. ``cookie`` is the name of the session's cookie."""
    replaced = _Replacement()
    results = [replaced.of(endpoint.result) for endpoint in endpoints if endpoint.result is not None]
    bodies = [replaced.of(endpoint.body) for endpoint in endpoints if endpoint.body is not None]
    params = [replaced.of(endpoint.params) for endpoint in endpoints]
    schemas, components = msgspec.json.schema_components([*results, *bodies, *params, ErrorDocument], ref_template=_REF)
    by_type = dict(zip([id(kind) for kind in (*results, *bodies, *params)], schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        found = paths.setdefault(endpoint.path, {})
        found[endpoint.method.lower()] = _describe_endpoint(endpoint, replaced, by_type, components)
    for kind in {schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema}:
        if kind.endswith("Parameters"):
            components.pop(kind, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Uttu",
            "version": __version__,
            "description": (
                "Everything that the dashboard shows and does. Lists have cursors: give the `next` of a page as "
                "`after` or `before` of the following one. Errors are RFC 9457 documents. A request with a session "
                "cookie that changes something needs the header X-CSRF-Token; one with a bearer token does not."
            ),
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
            },
        },
    }


def _describe_endpoint(
    endpoint: Endpoint, replaced: _Replacement, by_type: dict[int, Any], components: dict[str, Any]
) -> dict[str, Any]:
    schema = by_type.get(id(replaced.of(endpoint.result)), {}) if endpoint.result is not None else {}
    described: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [
            endpoint.path.removeprefix(PREFIX).strip("/").partition("/")[0].partition(":")[0].partition(".")[0] or "api"
        ],
        "parameters": list(_describe_params(endpoint, by_type[id(replaced.of(endpoint.params))], components)),
        "responses": {
            "200": {"description": "Done", "content": {endpoint.media_type: {"schema": schema}}},
            "default": {"description": "An error", "content": {MEDIA_TYPE: {"schema": _PROBLEM}}},
        },
        "security": [{"token": []}, {"session": []}] if endpoint.role is not None else [],
    }
    if endpoint.role is not None:
        described["x-role"] = str(endpoint.role)
    if endpoint.body is not None:
        body = by_type[id(replaced.of(endpoint.body))]
        required = bool(components[body["$ref"].rpartition("/")[2]].get("required"))
        described["requestBody"] = {"required": required, "content": {"application/json": {"schema": body}}}
    return described


def _describe_params(endpoint: Endpoint, schema: dict[str, Any], components: dict[str, Any]) -> Any:
    found = components[schema["$ref"].rpartition("/")[2]]
    for name, kind in found.get("properties", {}).items():
        in_path = name in endpoint.path_names
        yield {
            "name": name,
            "in": "path" if in_path else "query",
            "required": in_path or name in found.get("required", ()),
            "schema": kind,
        }


class _Replacement:
    """Replaces unions of several enums of strings, which msgspec can't describe, by one enum of all their values."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def of(self, kind: Any) -> Any:
        try:
            if kind not in self._known:
                self._known[kind] = kind  # for types that contain themselves
                self._known[kind] = self._replace(kind)
            return self._known[kind]
        except TypeError:
            return kind

    def _replace(self, kind: Any) -> Any:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._replace_struct(kind)
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated or not args:
            return kind
        new = tuple(self.of(each) if each is not Ellipsis else each for each in args)
        if origin in (typing.Union, types.UnionType):
            enums = [each for each in new if isinstance(each, type) and issubclass(each, StrEnum)]
            if len(enums) > 1:
                name = "Or".join(each.__name__ for each in enums)
                merged: Any = _make_enum(name, {m.name: m.value for each in enums for m in each})
                new = (merged, *(each for each in new if each not in enums))
            return typing.Union[new] if new != args else kind  # noqa: UP007
        return kind if new == args else types.GenericAlias(origin, new)

    def _replace_struct(self, kind: type[msgspec.Struct]) -> Any:
        fields = msgspec.structs.fields(kind)
        new = [self.of(field.type) for field in fields]
        if all(old.type is each or old.type == each for old, each in zip(fields, new, strict=True)):
            return kind
        made: list[Any] = []
        for field, each in zip(fields, new, strict=True):
            if field.required:
                made.append((field.encode_name, each))
            else:
                default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
                # Defaults of other types than JSON's can't be described.
                made.append((field.encode_name, each, msgspec.field(default_factory=partial(_return, default))))
        found = msgspec.defstruct(kind.__name__, made, kw_only=True, module=kind.__module__)
        found.__doc__ = kind.__doc__
        return found


def _return(value: Any) -> Any:
    return value


def _make_enum(name: str, members: dict[str, str]) -> Any:
    make: Any = StrEnum
    return make(name, members)
