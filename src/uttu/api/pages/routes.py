"""The tables of pages and forms, and their routes.

Every page and form names the role that may use it. The session, its user and its token against forged requests come
from the layer above: ``request.state.user`` and ``request.state.csrf``.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, compile_path

from uttu.api.access import is_own_path, parse_host
from uttu.api.endpoints import read_body
from uttu.api.pages.forms import FORMS, Form, Sent, describe_done
from uttu.api.pages.live import LiveHub, LiveKey, TooManyRooms, stream_events
from uttu.api.pages.rendering import THEMES, Frame, Rendered, render
from uttu.api.pages.shapes import PageData, Role, User
from uttu.api.pages.translation import COOKIE, LANGUAGES, Translator, choose_language, mark
from uttu.api.pages.views import View, Visit, access, crawl, jobs, overview, queues, schedules, start, tools
from uttu.api.problems import BodyTooLarge, find_status
from uttu.errors import UttuError

THEME_COOKIE: Final = "uttu_theme"
_YEAR: Final = 365 * 86_400
_LONGEST_MATCH: Final = 1000


class PageRoute(msgspec.Struct, frozen=True):
    """A page. ``section`` is the entry of the navigation that it belongs to."""

    path: str
    template: str
    view: View
    title: str
    section: str
    role: Role = Role.VIEWER
    live: bool = True


_CRAWL: Final = "/crawls/{store}/{crawl}"
PAGES: Final = (
    PageRoute("/", "overview.html", overview.show, mark("Overview"), "overview"),
    PageRoute(_CRAWL, "crawl_charts.html", crawl.show_charts, mark("Crawl"), "overview"),
    PageRoute(f"{_CRAWL}/hosts", "crawl_hosts.html", crawl.show_hosts, mark("Hosts"), "overview"),
    PageRoute(f"{_CRAWL}/errors", "crawl_errors.html", crawl.show_errors, mark("Errors"), "overview"),
    PageRoute(f"{_CRAWL}/requests", "crawl_requests.html", crawl.show_requests, mark("Requests"), "overview"),
    PageRoute(f"{_CRAWL}/items", "crawl_items.html", crawl.show_items, mark("Items"), "overview"),
    PageRoute(f"{_CRAWL}/workers", "crawl_workers.html", crawl.show_workers, mark("Workers"), "overview"),
    PageRoute(f"{_CRAWL}/settings", "crawl_settings.html", crawl.show_settings, mark("Settings"), "overview"),
    PageRoute(f"{_CRAWL}/events", "crawl_events.html", crawl.show_events, mark("Events"), "overview"),
    PageRoute("/queues", "queues.html", queues.show_all, mark("Queues"), "queues"),
    PageRoute("/queues/{bus}", "bus.html", queues.show_bus, mark("Queues"), "queues"),
    PageRoute("/queues/{bus}/groups/{group}", "group.html", queues.show_group, mark("Queues"), "queues", live=False),
    PageRoute("/jobs", "jobs.html", jobs.show_all, mark("Jobs"), "jobs"),
    PageRoute("/jobs/tasks/{id}", "task.html", jobs.show_task, mark("Jobs"), "jobs"),
    PageRoute("/schedules", "schedules.html", schedules.show, mark("Schedules"), "schedules"),
    PageRoute("/start", "start.html", start.show, mark("Start a crawl"), "start", Role.OPERATOR, live=False),
    PageRoute("/fetch", "fetch.html", tools.show_fetch, mark("Fetch a page"), "fetch", Role.ADMIN, live=False),
    PageRoute("/account", "account.html", tools.show_account, mark("Your account"), "", live=False),
    PageRoute("/users", "users.html", access.show_users, mark("Users"), "users", Role.ADMIN, live=False),
    PageRoute("/audit", "audit.html", access.show_audit, mark("Audit log"), "audit", Role.ADMIN, live=False),
)


def read_user(request: Request) -> User | None:
    """The user of a request, with a role of pages; None if nobody is logged in."""
    found = getattr(request.state, "user", None)
    return None if found is None else User(str(found.name), Role(str(found.role)))


def read_frame(request: Request, user: User) -> Frame:
    """What all pages share, from a request."""
    base = str(request.scope.get("root_path", "")).rstrip("/")
    language = choose_language(request.cookies.get(COOKIE), request.headers.get("accept-language", ""))
    theme = request.cookies.get(THEME_COOKIE, "auto")
    query = dict(request.query_params)
    done = describe_done(query.pop("done", ""), query.pop("what", ""), Translator(language))
    return Frame(
        user=user,
        path=request.scope["path"].removeprefix(base) or "/",
        query=query,
        host=parse_host(request.headers.get("host", "")),
        base=base,
        csrf=str(getattr(request.state, "csrf", "")),
        language=language,
        theme=theme if theme in THEMES else "auto",
        has_session=getattr(getattr(request.state, "visitor", None), "via", "session") == "session",
        done=done,
    )


class PageServer:
    """Answers requests for pages, forms, and live streams."""

    def __init__(self, data: PageData) -> None:
        self._data = data
        self._patterns = [(compile_path(page.path)[0], page) for page in PAGES]
        self.hub = LiveHub(self._render_live)

    def routes(self) -> list[BaseRoute]:
        """All routes, with the static files."""
        return [
            *(Route(page.path, self._answer_page(page), methods=["GET"]) for page in PAGES),
            *(Route(form.path, self._answer_form(form), methods=["POST"]) for form in FORMS),
            Route(f"{_CRAWL}/items.{{form}}", self._download, methods=["GET"]),
            Route("/live", self._live, methods=["GET"]),
            Route("/preferences", self._prefer, methods=["POST"]),
            Route("/static/{name}", send_static, methods=["GET"]),
        ]

    def _answer_page(self, page: PageRoute) -> Any:
        async def answer(request: Request) -> Response:
            user = read_user(request)
            if user is None:
                return _ask_login(request)
            frame = read_frame(request, user)
            if not user.role.allows(page.role):
                return _refuse(frame, page.role)
            rendered, status = await self._render(page, frame, request.path_params)
            return HTMLResponse(rendered.html, status, {"cache-control": "no-store"})

        return answer

    async def _render(self, page: PageRoute, frame: Frame, params: Mapping[str, str]) -> tuple[Rendered, int]:
        t = Translator(frame.language)
        shared = {"page_title": t(page.title), "section": page.section, "live": page.live, "notice": ""}
        try:
            context = await page.view(Visit(self._data, frame.user, t, params, frame.query))
        except UttuError as error:
            return render("unavailable.html", frame, {**shared, "error": str(error)}), find_status(error)
        return render(page.template, frame, {**shared, **context}), 200

    async def _render_live(self, key: LiveKey) -> dict[str, str]:
        page, params = self._match(key.path)
        frame = Frame(
            user=User("", key.role), path=key.path, query=dict(key.query), base=key.base, language=key.language
        )
        try:
            rendered, status = await self._render(page, frame, params)
        except Exception:
            t = Translator(key.language)
            return {"notice": _notice(frame, t("This page can't be refreshed. See the log."))}
        # The page that was loaded before an error has other fragments: they stay as they were.
        return rendered.fragments if status == 200 else {"notice": rendered.fragments["notice"]}

    def _match(self, path: str) -> tuple[PageRoute, Mapping[str, str]]:
        """:raises LookupError: there is no such page."""
        for pattern, page in self._patterns:
            if found := pattern.match(path):
                return page, found.groupdict()
        raise LookupError(path)

    async def _live(self, request: Request) -> Response:
        user = read_user(request)
        if user is None:
            return Response(status_code=401)
        frame = read_frame(request, user)
        wanted = urlsplit(request.query_params.get("path", "/"))
        try:
            page, _ = self._match(wanted.path)
        except LookupError:
            return Response(status_code=404)
        if not user.role.allows(page.role) or not page.live:
            return Response(status_code=403)
        query = tuple((name, value) for name, value in parse_qsl(wanted.query) if name not in ("done", "what"))
        if self.hub.is_full:
            return Response(status_code=503, headers={"retry-after": "10"})
        key = LiveKey(wanted.path, query, user.role, frame.language, frame.base)
        changes = self.hub.watch(key, getattr(request.state, "is_valid", lambda: True))
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(stream_events(changes), media_type="text/event-stream", headers=headers)

    def _answer_form(self, form: Form) -> Any:
        async def answer(request: Request) -> Response:
            user = read_user(request)
            if user is None:
                return _ask_login(request)
            frame = read_frame(request, user)
            if not user.role.allows(form.role):
                return _refuse(frame, form.role)
            fields = await _read_fields(request)
            t = Translator(frame.language)
            if fields is None or not _is_genuine(fields, frame):
                return _fail(frame, t("This form is too old or too large. Load the page again."), 403)
            try:
                done = await form.handle(Sent(self._data, user.name, t, request.path_params, fields))
            except UttuError as error:
                return _fail(frame, str(error), find_status(error))
            if done.template:
                shown = {**_plain(""), **done.shown}
                return HTMLResponse(render(done.template, frame, shown).html, headers={"cache-control": "no-store"})
            said = urlencode({"done": done.name, **({"what": done.what} if done.what else {})})
            return RedirectResponse(f"{frame.base}{done.to}?{said}", 303)

        return answer

    async def _download(self, request: Request) -> Response:
        user, form = read_user(request), request.path_params["form"]
        if user is None:
            return _ask_login(request)
        if form not in ("jsonl", "csv"):
            return Response(status_code=404)
        store, name = request.path_params["store"], request.path_params["crawl"]
        match = request.query_params.get("match", "")[:_LONGEST_MATCH]
        try:
            # Before the response begins, so that a crawl that does not exist is an error.
            first = await crawl.read_download(self._data, store, name, 0, match)
        except UttuError as error:
            return _fail(read_frame(request, user), str(error), find_status(error))
        lines = crawl.download_items(self._data, store, name, form, match, first)
        safe = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)
        headers = {"content-disposition": f'attachment; filename="{safe}.{form}"', "cache-control": "no-store"}
        kind = "application/x-ndjson" if form == "jsonl" else "text/csv; charset=utf-8"
        return StreamingResponse(lines, media_type=kind, headers=headers)

    async def _prefer(self, request: Request) -> Response:
        """Remember the language or the theme in a cookie, and go back."""
        user = read_user(request) or User("", Role.VIEWER)
        frame = read_frame(request, user)
        fields = await _read_fields(request) or {}
        back = fields.get("back", "/")
        response = RedirectResponse(frame.base + (back if is_own_path(back) else "/"), 303)
        for name, cookie, known in (("language", COOKIE, tuple(LANGUAGES)), ("theme", THEME_COOKIE, THEMES)):
            if fields.get(name) in known:
                response.set_cookie(
                    cookie,
                    fields[name],
                    max_age=_YEAR,
                    path=frame.base or "/",
                    httponly=True,
                    samesite="lax",
                    secure=request.url.scheme == "https",
                )
        return response


async def _read_fields(request: Request) -> dict[str, str] | None:
    """The fields of a form without files; None if it is too large or has another type."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return None
    try:
        body = await read_body(request)
    except BodyTooLarge:
        return None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000))
    except ValueError:
        return None


def _is_genuine(fields: Mapping[str, str], frame: Frame) -> bool:
    return bool(frame.csrf) and hmac.compare_digest(fields.get("csrf", "").encode(), frame.csrf.encode())


def _plain(title: str, section: str = "") -> dict[str, Any]:
    return {"page_title": title, "section": section, "live": False, "notice": ""}


def _notice(frame: Frame, text: str) -> str:
    shared = {**_plain(""), "error": text}
    return render("unavailable.html", frame, shared).fragments["notice"]


def _fail(frame: Frame, error: str, status: int) -> Response:
    t = Translator(frame.language)
    shared = {**_plain(t("That did not work")), "error": error}
    return HTMLResponse(render("failed.html", frame, shared).html, status, {"cache-control": "no-store"})


def _refuse(frame: Frame, role: Role) -> Response:
    t = Translator(frame.language)
    return _fail(frame, t("This needs the role {role}. Ask an admin of this dashboard.", role=role), 403)


def _ask_login(request: Request) -> Response:
    base = str(request.scope.get("root_path", "")).rstrip("/")
    path = request.scope["path"].removeprefix(base) or "/"
    return RedirectResponse(f"{base}/login?{urlencode({'next': path})}" if path != "/" else f"{base}/login", 303)


def render_login(request: Request, *, failed: str = "", next: str = "/", status: int = 200) -> Response:
    """The login page. ``failed``: why the last attempt was refused."""
    frame = read_frame(request, User("", Role.VIEWER))
    t = Translator(frame.language)
    shared = {**_plain(t("Log in")), "failed": failed, "next": next}
    return HTMLResponse(render("login.html", frame, shared).html, status, {"cache-control": "no-store"})


def render_account(request: Request, *, failed: str, status: int) -> Response:
    """The account page of a user, with the reason why the password was not changed."""
    user = read_user(request)
    assert user is not None
    frame = read_frame(request, user)
    shared = {**_plain(Translator(frame.language)("Your account")), "failed": failed}
    return HTMLResponse(render("account.html", frame, shared).html, status, {"cache-control": "no-store"})


_STATIC_TYPES: Final = {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}


async def send_static(request: Request) -> Response:
    """A static file. Its address changes with its content, so browsers may keep it."""
    name = request.path_params["name"]
    if name not in _STATIC_TYPES:
        return Response(status_code=404)
    content = (resources.files("uttu.api.pages") / "static" / name).read_bytes()
    keep = "public, max-age=31536000, immutable" if request.url.query else "no-cache"
    return Response(content, media_type=f"{_STATIC_TYPES[name]}; charset=utf-8", headers={"cache-control": keep})


__all__ = ["FORMS", "PAGES", "PageRoute", "PageServer", "TooManyRooms", "render_account", "render_login"]
