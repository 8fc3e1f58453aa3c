"""Logging in and out, passwords, and too many attempts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.api.running import PASSWORD, Dashboard, add_users, run_dashboard


@pytest.fixture
def guarded(folder: Path) -> Iterator[Dashboard]:
    add_users(folder)
    with run_dashboard(folder) as running:
        yield running


def test_a_session(guarded: Dashboard) -> None:
    answer = guarded.post("/api/v1/session:start", {"name": "operator", "password": PASSWORD})
    flags = answer.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=lax" in flags
    assert "secure" not in flags
    cookie = answer.headers["set-cookie"].partition(";")[0]
    view = guarded.get("/api/v1/session", cookie=cookie).json
    assert view == {"user": "operator", "role": "operator", "via": "session", "csrf": answer.json["csrf"]}
    ended = guarded.post("/api/v1/session:end", headers={"X-CSRF-Token": view["csrf"]}, cookie=cookie)
    assert ended.status == 200
    # The cookie itself is refused, not only removed from the browser.
    assert guarded.get("/api/v1/session", cookie=cookie).status == 401


def test_a_new_password_ends_all_sessions(guarded: Dashboard) -> None:
    cookie, csrf = guarded.log_in("viewer")
    other, _ = guarded.log_in("viewer")
    headers = {"X-CSRF-Token": csrf}
    wrong = guarded.post("/api/v1/session:password", {"old": "x", "new": "another one"}, headers=headers, cookie=cookie)
    assert wrong.status == 422
    body = {"old": PASSWORD, "new": "another one"}
    changed = guarded.post("/api/v1/session:password", body, headers=headers, cookie=cookie)
    assert changed.status == 200
    for old in (cookie, other):
        assert guarded.get("/api/v1/session", cookie=old).status == 401
    new = changed.headers["set-cookie"].partition(";")[0]
    assert guarded.get("/api/v1/session", cookie=new).status == 200
    guarded.log_in("viewer", "another one")


def test_too_many_attempts_for_a_name(guarded: Dashboard) -> None:
    for name in ("admin", "nobody"):
        codes = [guarded.post("/api/v1/session:start", {"name": name, "password": "wrong"}).status for _ in range(10)]
        assert set(codes) <= {401, 429}
    answer = guarded.post("/api/v1/session:start", {"name": "admin", "password": PASSWORD})
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) > 100


def test_the_login_page(guarded: Dashboard) -> None:
    page = guarded.get("/login?next=/queues")
    visit = page.headers["set-cookie"].partition(";")[0]
    csrf = page.body.decode().partition('name="csrf" value="')[2].partition('"')[0]
    assert csrf
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    def send(cookie: str = visit, **fields: str) -> int:
        given = {"name": "admin", "password": PASSWORD, "next": "/queues", "csrf": csrf} | fields
        answer = guarded.ask("POST", "/login", urlencode(given).encode(), kind, cookie=cookie)
        if answer.status == 303:
            assert answer.headers["location"] in ("/queues", "/")
        return answer.status

    assert send(csrf="wrong") == 403
    assert send(cookie="") == 403
    assert send(password="wrong") == 401
    assert send() == 303
    assert send(next="//evil.example/") == 303
    assert send(next="https://evil.example/") == 303


def test_secure_cookies_behind_a_proxy(folder: Path) -> None:
    add_users(folder)
    Path("uttu.toml").write_text('[dashboard]\nproxies = ["127.0.0.1"]\nroot_path = "/uttu"\n')
    with run_dashboard(folder) as running:
        headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
        body = {"name": "admin", "password": PASSWORD}
        answer = running.post("/api/v1/session:start", body, headers=headers)
        flags = answer.headers["set-cookie"].lower()
        assert "secure" in flags
        assert "path=/uttu" in flags
        assert "strict-transport-security" in answer.headers
        assert '"192.0.2.7"' in Path(".uttu/dashboard/audit.jsonl").read_text()
        # With and without a proxy that removes the prefix.
        for path in ("/", "/uttu/", "/uttu"):
            assert running.get(path).headers["location"] == "/uttu/login"
        assert running.server.config.app.state.context.config.settings.url.endswith("/uttu/")  # type: ignore[union-attr]
        assert running.get("/uttu/login").status == running.get("/login").status == 200
        assert running.get("/uttu/api/v1/openapi.json").json == running.get("/api/v1/openapi.json").json
        assert running.get("/uttuother").status == 404


def test_a_prefix_that_is_a_page(folder: Path) -> None:
    Path("uttu.toml").write_text('[dashboard]\nroot_path = "/queues"\n')
    with run_dashboard(folder) as running:
        assert b"<title>Queues" in running.get("/queues").body
