"""A hostile site and hostile visitors: markup in everything that a site chooses, forged requests, other names.

The store is a real one, so that texts take the whole way from a crawl to a page.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.api.pages.test_live import KEY, Renderer
from tests.api.running import PASSWORD, Dashboard, add_users, run_dashboard
from tests.api.sample import HOSTILE, SampleData
from tests.api.serving import create_sample_app
from tests.api.test_bodies import exchange
from tests.api.test_streams import Listener
from tests.api.visits import PATHS, parse_page
from uttu.api import endpoints
from uttu.api.accounts import Role
from uttu.api.pages import live
from uttu.api.pages.live import LiveHub, LiveKey, TooManyRooms
from uttu.api.pages.routes import PAGES
from uttu.frontier.catalog import CrawlStore
from uttu.model import Dead, Request
from uttu.model.crawl import LogLine, Rules, WorkerReport
from uttu.model.history import EventKind
from uttu.operations.crawls import connect_frontier

CRAWL = "/crawls/local/shop"
EVIL = f"http://evil.example/?q={HOSTILE.split(chr(0))[0]}"


async def poison(folder: Path) -> None:
    """Fill the crawl ``shop`` with markup."""
    async with connect_frontier("", folder) as catalog:
        store = await catalog.open("shop", Rules())
        await write_hostile(store)
        await store.frontier.close()


async def write_hostile(store: CrawlStore) -> None:
    report = WorkerReport(
        pid=1,
        host=HOSTILE,
        flying=[EVIL],
        log=[LogLine(time.time(), "error", HOSTILE)],
    )
    await store.ledger.report(HOSTILE, msgspec.json.encode(report))
    fields: dict[str, str | int | float] = {"by": HOSTILE, "action": HOSTILE, "worker": HOSTILE, "lane": HOSTILE}
    fields |= {"reason": HOSTILE, "what": HOSTILE, "state": HOSTILE, "output": HOSTILE, "seconds": 3}
    await store.history.add_events([(kind, fields) for kind in EventKind])
    await store.frontier.put([Request(EVIL, start=True)])
    leases = await store.frontier.lease(10, "w")
    assert leases
    await store.frontier.settle([Dead(lease=each, kind="handler", reason=HOSTILE, detail=HOSTILE) for each in leases])


@pytest.fixture
def poisoned(folder: Path) -> Iterator[Dashboard]:
    asyncio.run(poison(folder))
    with run_dashboard(folder) as running:
        yield running


def check_markup(text: str) -> None:
    """Check that a page has our own script only, and no attribute that runs code."""
    tree = parse_page(text)
    assert [each.get("src", "").partition("?")[0] for each in tree.xpath("//script")] == ["/static/app.js"]
    for element in tree.iter():
        names = [str(name).lower() for name in element.attrib]
        assert not [name for name in names if name.startswith("on") or name == "style"]
        for name in ("href", "action", "src"):
            assert not str(element.get(name, "")).lower().startswith(("javascript:", "data:"))


def test_pages_over_a_real_store(poisoned: Dashboard) -> None:
    shown = 0
    for tab in ("", "/hosts", "/errors", "/requests", "/items", "/workers", "/settings", "/events"):
        answer = poisoned.get(CRAWL + tab)
        assert answer.status == 200, tab
        check_markup(answer.body.decode())
        shown += answer.body.count(b"&lt;script&gt;")
    assert shown > 8
    check_markup(poisoned.get("/").body.decode())


@pytest.mark.parametrize("path", ["/workers", "/events", "/dead", "/lanes"])
def test_json_is_never_taken_for_a_page(poisoned: Dashboard, path: str) -> None:
    answer = poisoned.get(f"/api/v1{CRAWL}{path}")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_events_stay_one_line(poisoned: Dashboard) -> None:
    with Listener(poisoned, "local=0") as listener:
        found = [listener.next()[1] for _ in EventKind]
    assert {each["kind"] for each in found} == set(EventKind)


@pytest.mark.parametrize("path", [path for path in PATHS if path.partition("?")[0] != "/login"])
async def test_live_fragments(path: str) -> None:
    pages = create_sample_app(SampleData(hostile=True)).state.pages
    place = path.partition("?")[0]
    found = next(page for page in PAGES if pages._match(place)[0] is page)
    if not found.live:
        return
    fragments = await pages._render_live(LiveKey(place, (), Role.ADMIN, "en"))
    for html in fragments.values():
        assert "<script" not in html
        assert "<img src=x" not in html
    assert "\n" not in json.dumps(fragments)


def test_paths_in_errors(dashboard: Dashboard) -> None:
    for path in ("/crawls/local/%3Cscript%3E", "/queues/%22onx=%22", "/nothing/%3Cb%3E", "/crawls/%0d%0aX:y/shop"):
        answer = dashboard.get(path)
        assert answer.status in (404, 503)
        assert b"<script>" not in answer.body.replace(b"<script src", b"")
        assert "X" not in answer.headers


@pytest.mark.parametrize(
    "next",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "/a\r\nX: y", "javascript:x"],
)
def test_open_redirects(dashboard: Dashboard, next: str) -> None:
    from urllib.parse import quote, urlencode

    answer = dashboard.get(f"/login?next={quote(next)}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    form = urlencode({"theme": "dark", "back": next}).encode()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = dashboard.ask("POST", "/preferences", form, kind)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert "X" not in answer.headers


def test_header_injection_by_a_form(dashboard: Dashboard) -> None:
    csrf = dashboard.get("/api/v1/session").json["csrf"]
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    form = f"csrf={csrf}&host=shop.example%0d%0aX:y&delay=1".encode()
    answer = dashboard.ask("POST", f"{CRAWL}/rate", form, kind)
    assert "X" not in answer.headers
    assert answer.status in (303, 422)


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", ""])
def test_forms_of_other_types(dashboard: Dashboard, kind: str) -> None:
    csrf = dashboard.get("/api/v1/session").json["csrf"]
    answer = dashboard.ask("POST", f"{CRAWL}/pause", f"csrf={csrf}".encode(), {"Content-Type": kind})
    assert answer.status == 403


def test_symbolic_links(dashboard: Dashboard, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "spider.py").write_text("raise SystemExit(7)")
    os.symlink(outside, "inside")
    os.symlink(outside / "spider.py", "evil.py")
    for file in ("inside/spider.py", "evil.py"):
        assert dashboard.post("/api/v1/crawls:start", {"file": file}).status == 422
    assert dashboard.post("/api/v1/crawls/local/shop:export", {"target": "inside/out.jsonl"}).status == 422
    settings = {"ca_file": "inside/spider.py"}
    assert dashboard.post("/api/v1/crawls:start", {"file": "shop.py", "settings": settings}).status == 422
    assert not list(outside.glob("*.jsonl"))


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:6379/",
        "http://2130706433/",
        "http://[::1]/",
        "http://localhost/",
        '{"url": "http://10.0.0.1/"}',
    ],
)
def test_pushing_private_urls(dashboard: Dashboard, url: str) -> None:
    answer = dashboard.post("/api/v1/crawls/local/shop:push", {"urls": [url]})
    assert answer.status == 200, answer.body
    assert (answer.json["new"], answer.json["bad"]) == (0, 1)


def test_pushing_a_private_proxy(dashboard: Dashboard) -> None:
    entry = json.dumps({"url": "http://shop.example/", "proxy": "http://127.0.0.1:6379"})
    answer = dashboard.post("/api/v1/crawls/local/shop:push", {"urls": [entry]})
    assert (answer.json["new"], answer.json["bad"]) == (0, 1)


async def test_a_name_server_that_changes_its_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first look-up is public, the one for the connection private (DNS rebinding)."""
    from uttu.errors import UsageError
    from uttu.operations import fetch
    from uttu.settings import load_settings

    answers = iter([["198.51.100.7"], ["127.0.0.1"], ["127.0.0.1"]])

    async def look_up(name: str) -> list[str]:
        return next(answers)

    monkeypatch.setattr(fetch, "look_up_addresses", look_up)
    settings = load_settings(folder=tmp_path, environment={})
    with pytest.raises(UsageError, match="private"):
        await fetch.fetch_page(Request("http://rebind.example/"), settings, public=True, folder=tmp_path)


@pytest.fixture
def guarded(folder: Path) -> Iterator[Dashboard]:
    add_users(folder)
    with run_dashboard(folder) as running:
        yield running


def test_open_streams_end_with_the_session(guarded: Dashboard) -> None:
    for path in ("/api/v1/events", "/live?path=/"):
        cookie, csrf = guarded.log_in("viewer")
        with guarded.connect() as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
            assert b" 200 " in connection.recv(4096)
            answer = guarded.post("/api/v1/session:end", headers={"X-CSRF-Token": csrf}, cookie=cookie)
            assert answer.status == 200
            ended = time.monotonic()
            connection.settimeout(8)
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                chunk = connection.recv(65536)
                assert chunk, received[-100:]
                received += chunk
            assert time.monotonic() - ended < 7


def test_a_session_is_new_after_each_login(guarded: Dashboard) -> None:
    """Session fixation: a cookie from before the login is worth nothing after it."""
    first, _ = guarded.log_in("viewer")
    answer = guarded.ask(
        "POST", "/api/v1/session:start", {"name": "admin", "password": PASSWORD}, headers={"Cookie": first}
    )
    second = answer.headers["set-cookie"].partition(";")[0]
    assert first != second
    assert guarded.get("/api/v1/session", cookie=first).json["user"] == "viewer"
    assert guarded.get("/api/v1/session", cookie=second).json["user"] == "admin"


def test_the_page_of_the_password(guarded: Dashboard) -> None:
    cookie, csrf = guarded.log_in("operator")
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    def send(**fields: str) -> tuple[int, str]:
        from urllib.parse import urlencode

        answer = guarded.ask("POST", "/account", urlencode(fields).encode(), kind, cookie=cookie)
        return answer.status, answer.headers.get("set-cookie", "").partition(";")[0]

    assert send(old=PASSWORD, new="another word")[0] == 403
    assert send(csrf=csrf, old="wrong", new="another word")[0] == 422
    assert send(csrf=csrf, old=PASSWORD, new="short")[0] == 422
    status, fresh = send(csrf=csrf, old=PASSWORD, new="another word")
    assert status == 303
    assert guarded.get("/account", cookie=fresh).status == 200
    assert guarded.get("/account", cookie=cookie).status == 303
    assert guarded.post("/api/v1/session:start", {"name": "operator", "password": PASSWORD}).status == 401


def test_a_login_takes_as_long_for_unknown_names(guarded: Dashboard) -> None:
    def measure(name: str) -> float:
        began = time.perf_counter()
        assert guarded.context.accounts.check_password(name, "wrong word") is None
        return time.perf_counter() - began

    known = statistics.median(measure("admin") for _ in range(7))
    unknown = statistics.median(measure("nobody") for _ in range(7))
    assert 1 / 3 < known / unknown < 3


def test_a_form_that_is_too_slow(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BODY_SECONDS", 0.5)
    for path in (f"{CRAWL}/pause", "/preferences", "/login", "/account"):
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/x-www-form-urlencoded"]
        head = "\r\n".join([*lines, "Connection: close", "Content-Length: 100"]) + "\r\n\r\n"
        began = time.monotonic()
        assert b" 408 " in exchange(dashboard, head.encode(), b"csrf=").partition(b"\r\n")[0], path
        assert time.monotonic() - began < 5


def test_thousands_of_viewers(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_MOST_VIEWERS", 20)
    sent = b"GET /live?path=/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    open_streams = []
    try:
        for _ in range(60):
            connection = dashboard.connect()
            connection.sendall(sent)
            open_streams.append(connection)
        heads = [each.recv(4096).partition(b"\r\n")[0] for each in open_streams]
        assert sum(b" 200 " in head for head in heads) <= 21
        assert sum(b" 503 " in head for head in heads) >= 39
        began = time.monotonic()
        assert dashboard.get("/").status == 200
        assert time.monotonic() - began < 3
    finally:
        for each in open_streams:
            each.close()


def test_viewers_of_one_page_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_MOST_VIEWERS", 1)

    async def crowd() -> None:
        hub = LiveHub(Renderer(), 60)
        first = hub.watch(KEY)
        await anext(first)
        with pytest.raises(TooManyRooms):
            await anext(hub.watch(KEY))
        await first.aclose()
        assert not hub.is_full

    asyncio.run(crowd())


def test_a_download_of_a_crawl_that_is_not_there(dashboard: Dashboard) -> None:
    assert dashboard.get("/crawls/local/none/items.csv").status == 404
