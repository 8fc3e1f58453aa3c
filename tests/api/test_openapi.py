"""The OpenAPI document is valid, and describes exactly the routes that there are."""

from __future__ import annotations

import re

from openapi_spec_validator import validate
from starlette.routing import Route

from tests.api.running import Dashboard
from uttu.api.app import OPENAPI_PATH
from uttu.api.endpoints import PREFIX
from uttu.api.routes import ENDPOINTS, PUBLIC


def test_the_document_is_valid_and_describes_all_routes(dashboard: Dashboard) -> None:
    answer = dashboard.get(OPENAPI_PATH)
    assert answer.status == 200
    document = answer.json
    validate(document)
    cookie = document["components"]["securitySchemes"]["session"]["name"]
    assert cookie == f"uttu_session_{dashboard.port}" == dashboard.context.access.cookie
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    routes = [each for each in dashboard.server.config.app.routes if isinstance(each, Route)]  # type: ignore[union-attr]
    served = {
        (method, route.path)
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
        if route.path.startswith(PREFIX) or route.path in ("/healthz", "/metrics")
    }
    assert described == served - {("GET", OPENAPI_PATH)}


def test_each_operation_is_described() -> None:
    names = [endpoint.name for endpoint in (*ENDPOINTS, *PUBLIC)]
    assert len(names) == len(set(names))
    assert all(endpoint.summary for endpoint in (*ENDPOINTS, *PUBLIC))


def test_responses_match_the_document(dashboard: Dashboard) -> None:
    """Each GET without special parameters answers with what the document says."""
    from jsonschema import Draft202012Validator

    document = dashboard.get(OPENAPI_PATH).json
    values = {"store": "local", "crawl": "shop"}
    tried = 0
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" or endpoint.media_type != "application/json":
            continue
        # Jobs need a broker, and only crawls on Redis have keys.
        if not set(endpoint.path_names) <= values.keys() or re.search("/jobs|/schedules|/keys", endpoint.path):
            continue
        path = endpoint.path.format(**values) + ("?url=https://shop.example/" if "/requests" in endpoint.path else "")
        answer = dashboard.get(path)
        assert answer.status == 200, (path, answer.body)
        content = document["paths"][endpoint.path]["get"]["responses"]["200"]["content"]
        schema = content["application/json"]["schema"] | {"components": document["components"]}
        Draft202012Validator(schema).validate(answer.json)
        tried += 1
    assert tried > 12
