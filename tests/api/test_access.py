"""Who may do what: every endpoint and page with every role, with wrong tokens, old sessions and from other sites."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from starlette.routing import Route

from tests.api.running import Dashboard, add_users, run_dashboard
from tests.cli.conftest import make_crawl
from uttu.api.access import Session
from uttu.api.accounts import Role
from uttu.api.endpoints import Endpoint
from uttu.api.pages.routes import FORMS, PAGES
from uttu.api.routes import ENDPOINTS

ALL = [pytest.param(each, id=each.name) for each in ENDPOINTS if each.media_type != "text/event-stream"]
CHANGES = [pytest.param(each, id=each.name) for each in ENDPOINTS if each.method == "POST"]
# Anybody may see these.
OPEN_PATHS = {"/healthz", "/api/v1/openapi.json", "/api/v1/session:start", "/login", "/static/{name}", "/preferences"}


class Guarded(msgspec.Struct):
    """A dashboard with a user and a token for each role."""

    dashboard: Dashboard
    tokens: dict[Role, str]
    sessions: dict[Role, tuple[str, str]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_crawl()
        tokens = add_users(folder)
        with run_dashboard(folder) as dashboard:
            yield Guarded(dashboard, tokens, {role: dashboard.log_in(str(role)) for role in Role})


def path_of(endpoint: Endpoint) -> str:
    """A path of an endpoint to things that don't exist, so that nothing is changed."""
    return endpoint.path.format(**dict.fromkeys(endpoint.path_names, "none"))


@pytest.mark.parametrize("endpoint", ALL)
def test_without_a_login(guarded: Guarded, endpoint: Endpoint) -> None:
    answer = guarded.dashboard.ask(endpoint.method, path_of(endpoint), {} if endpoint.method == "POST" else None)
    assert answer.status == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Bearer" in answer.headers["www-authenticate"]


@pytest.mark.parametrize("endpoint", ALL)
def test_with_a_wrong_token(guarded: Guarded, endpoint: Endpoint) -> None:
    for token in ("uttu_wrong", guarded.tokens[Role.ADMIN][:-1], "x" * 5000):
        assert guarded.dashboard.ask(endpoint.method, path_of(endpoint), token=token).status == 401


@pytest.mark.parametrize("endpoint", ALL)
def test_with_a_session_that_is_not_valid(guarded: Guarded, endpoint: Endpoint) -> None:
    stored = guarded.dashboard.context.accounts.read().users["admin"]
    now = time.time()
    forged = guarded.sessions[Role.ADMIN][0][:-3] + "abc"
    bad = [
        guarded.dashboard.cookie_of(Session("admin", "1", now - 1, stored.epoch)),
        guarded.dashboard.cookie_of(Session("admin", "2", now + 60, "former epoch")),
        guarded.dashboard.cookie_of(Session("nobody", "3", now + 60, stored.epoch)),
        forged,
    ]
    for cookie in bad:
        assert guarded.dashboard.ask(endpoint.method, path_of(endpoint), cookie=cookie).status == 401


@pytest.mark.parametrize("endpoint", ALL)
def test_roles(guarded: Guarded, endpoint: Endpoint) -> None:
    assert endpoint.role is not None
    for role in Role:
        if endpoint.name in ("log_out", "change_own_password"):
            continue
        body: dict[str, str] | None = {} if endpoint.method == "POST" else None
        by_token = guarded.dashboard.ask(endpoint.method, path_of(endpoint), body, token=guarded.tokens[role])
        cookie, csrf = guarded.sessions[role]
        headers = {"X-CSRF-Token": csrf}
        by_session = guarded.dashboard.ask(endpoint.method, path_of(endpoint), body, headers, cookie=cookie)
        for answer in (by_token, by_session):
            if role.allows(endpoint.role):
                assert answer.status not in (401, 403, 500), answer.body
            else:
                assert answer.status == 403


@pytest.mark.parametrize("endpoint", CHANGES)
def test_requests_of_other_sites(guarded: Guarded, endpoint: Endpoint) -> None:
    cookie, csrf = guarded.sessions[Role.ADMIN]
    other = guarded.sessions[Role.VIEWER][1]
    for headers in (
        {},
        {"X-CSRF-Token": "wrong"},
        {"X-CSRF-Token": other},
        {"X-CSRF-Token": csrf, "Origin": "https://evil.example"},
        {"X-CSRF-Token": csrf, "Origin": "null"},
        {"X-CSRF-Token": csrf, "Sec-Fetch-Site": "cross-site"},
    ):
        answer = guarded.dashboard.post(path_of(endpoint), headers=headers, cookie=cookie)
        assert answer.status == 403, headers


@pytest.mark.parametrize("endpoint", CHANGES)
def test_requests_of_other_sites_without_users(dashboard: Dashboard, endpoint: Endpoint) -> None:
    for headers in (
        {"Content-Type": "text/plain"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"X-Forwarded-For": "1.2.3.4"},
    ):
        assert dashboard.post(path_of(endpoint), headers=headers).status in (403, 421), headers


def test_every_route_is_guarded(guarded: Guarded) -> None:
    """Also pages and forms: nobody sees or does anything without a login."""
    for route in guarded.dashboard.server.config.app.routes:  # type: ignore[union-attr]
        assert isinstance(route, Route)
        if route.path in OPEN_PATHS or route.path == "/api/v1/events":
            continue
        path = route.path
        for name in route.param_convertors:
            path = path.replace(f"{{{name}}}", "none")
        for method in (route.methods or set()) - {"HEAD"}:
            headers = {"Content-Type": "application/x-www-form-urlencoded"} if method == "POST" else {}
            answer = guarded.dashboard.ask(method, path, b"" if method == "POST" else None, headers)
            is_asked = answer.status == 303 and "/login" in answer.headers["location"]
            assert answer.status in (401, 403) or is_asked, (method, path, answer.status)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_pages_by_role(guarded: Guarded, page: object) -> None:
    path: str = page.path.format(store="local", crawl="shop", bus="none", group="none", id="none")  # type: ignore[attr-defined]
    for role in Role:
        answer = guarded.dashboard.get(path, cookie=guarded.sessions[role][0])
        allowed = role.allows(page.role)  # type: ignore[attr-defined]
        assert (answer.status != 403) is allowed, (path, role, answer.status)
        assert answer.status != 500
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


def test_the_event_stream_needs_a_login(guarded: Guarded) -> None:
    assert guarded.dashboard.get("/api/v1/events").status == 401


def test_other_names_of_the_host(dashboard: Dashboard) -> None:
    for host in ("localhost", "127.0.0.1", f"localhost:{dashboard.port}", "[::1]:80", "a.localhost"):
        assert dashboard.get("/api/v1/session", headers={"Host": host}).status == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "0x7f.1"):
        assert dashboard.get("/api/v1/session", headers={"Host": host}).status == 421


def test_what_is_done_is_written_down(guarded: Guarded) -> None:
    dashboard, token = guarded.dashboard, guarded.tokens[Role.OPERATOR]
    dashboard.post("/api/v1/crawls/local/shop:rate", {"host": "shop.example", "delay": 2}, token=token)
    dashboard.post("/api/v1/users:add", {"name": "eve", "password": "secret-word", "role": "admin"}, token=token)
    found = dashboard.get("/api/v1/audit?limit=2", token=guarded.tokens[Role.ADMIN]).json
    refused, done = found["entries"]
    assert done["user"] == "operator-token"
    assert done["action"] == "POST /api/v1/crawls/local/shop:rate"
    assert "host=shop.example" in done["target"]
    assert refused["status"] == 403
    assert "needs the role admin" in refused["error"]
    assert "secret-word" not in Path(".uttu/dashboard/audit.jsonl").read_text()
    older = dashboard.get(f"/api/v1/audit?limit=2&before={found['next']}", token=guarded.tokens[Role.ADMIN]).json
    assert older["entries"][0]["position"] < done["position"]


def test_pages_and_the_api_need_the_same_roles() -> None:
    api = {endpoint.name: endpoint.role for endpoint in ENDPOINTS}
    # A form is handled by a function with the name of the endpoint that does the same.
    both = {form.handle.__name__: form.role for form in FORMS if form.handle.__name__ in api}
    assert len(both) >= 15
    assert {"resize_pool", "shut_down_worker"} <= both.keys()
    assert {name: str(api[name]) for name in both} == {name: str(role) for name, role in both.items()}
