"""The app: middleware that every request passes, routes from the table of endpoints, and the pages.

    request ──► Guard: host, visitor, other sites ──► role ──► endpoint or page ──► headers, audit log

``request.state.user`` is the user or None, ``request.state.csrf`` the token of its forms, and ``request.state.visitor``
both and how the user is known. Everything that changes something is written to the audit log, also if it is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uttu.api.access import CSRF_FIELD, SAFE_METHODS, Visitor, check_bind, find_address, is_own_path
from uttu.api.accounts import Role, User
from uttu.api.context import Context
from uttu.api.data import buses, jobs
from uttu.api.endpoints import PREFIX, Endpoint, read_body, run_endpoint
from uttu.api.openapi import describe_api
from uttu.api.page_data import DashboardData
from uttu.api.pages.routes import PageServer, render_account, render_login
from uttu.api.problems import (
    MalformedBody,
    RequestRefused,
    describe_problem,
    find_status,
    make_problem,
    problem_response,
)
from uttu.api.routes import ENDPOINTS, PUBLIC
from uttu.api.settings import DashboardConfig
from uttu.errors import UttuError
from uttu.operations.connections import kept_connections

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
OPENAPI_PATH: Final = f"{PREFIX}/openapi.json"
_log = logging.getLogger("uttu.api")


def create_app(config: DashboardConfig) -> Starlette:
    """The dashboard as an ASGI app. ``app.state.context`` is its :class:`Context`, ``app.state.pages`` its pages.

    :raises UsageError: others could reach it, and it has neither users nor tokens.
    :raises ConfigError: the file with the users can't be read.
    """
    context = Context(config)
    check_bind(config, context.accounts)
    pages = PageServer(DashboardData(context))

    @contextlib.asynccontextmanager
    async def run(app: Starlette) -> AsyncIterator[None]:
        async with kept_connections() as kept:
            context.kept = kept
            context.run_behind(jobs.watch_tasks(context))
            watching = asyncio.create_task(buses.watch_lags(context))
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                await close_streams(app)
                await context.close()
                context.kept = None

    routes: list[BaseRoute] = [
        *(Route(endpoint.path, _answer(endpoint), methods=[endpoint.method]) for endpoint in (*ENDPOINTS, *PUBLIC)),
        Route(OPENAPI_PATH, show_openapi, methods=["GET"]),
        Route("/login", _show_login, methods=["GET"]),
        Route("/login", _log_in, methods=["POST"]),
        Route("/logout", _log_out, methods=["POST"]),
        Route("/account", _change_password, methods=["POST"]),
        *pages.routes(),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, context=context, sections=_list_sections(routes))],
        exception_handlers={UttuError: _explain, HTTPException: _explain_http},
        lifespan=run,
    )
    app.state.context = context
    app.state.pages = pages
    return app


async def close_streams(app: Starlette) -> None:
    """End all streams of events, so that the server can end."""
    app.state.context.closing.set()
    await app.state.pages.hub.close()


class Guard:
    """Checks every request before it reaches a route, and completes every response."""

    def __init__(self, app: ASGIApp, context: Context, sections: frozenset[str]) -> None:
        self._app = app
        self._context = context
        # A path prefix such as /jobs could also be a page. Then only a proxy can remove it.
        root = context.config.settings.root_path
        self._prefix = root if root and root.split("/")[1] not in sections else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._remove_prefix(scope)
        request = Request(scope, receive)
        state = request.state
        state.context, state.user, state.visitor, state.csrf, state.target = self._context, None, Visitor(), "", ""
        state.error = ""
        is_started = False

        async def complete(message: Message) -> None:
            nonlocal is_started
            is_started = True
            if message["type"] == "http.response.start":
                _add_headers(message, scope)
                if request.method not in SAFE_METHODS:
                    # Before the response: what a client knows to be done is in the log.
                    self._record(request, message["status"])
            await send(message)

        try:
            self._admit(request)
        except UttuError as error:
            await (await _explain(request, error))(scope, receive, complete)
            return
        try:
            await self._app(scope, receive, complete)
        except Exception as error:
            if is_started:
                raise
            await (await _explain_failure(request, error))(scope, receive, complete)

    def _remove_prefix(self, scope: Scope) -> None:
        """Serve the path prefix also without a proxy that removes it, so that the address that we print works.

        uvicorn puts the prefix before the path of every request, so here it is there twice.
        """
        if self._prefix and f"{scope['path']}/".startswith(f"{self._prefix * 2}/"):
            path = scope["path"].removeprefix(self._prefix)
            scope["path"] = f"{path}/" if path == self._prefix else path

    def _admit(self, request: Request) -> None:
        access = self._context.access
        access.check_host(request)
        visitor = access.identify(request)
        state = request.state
        state.visitor, state.user, state.csrf = visitor, visitor.user, visitor.csrf
        state.is_valid = partial(access.is_valid, visitor)
        if request.method not in SAFE_METHODS:
            access.check_origin(request, visitor)

    def _record(self, request: Request, status: int) -> None:
        user: User | None = request.state.user
        root = str(request.scope.get("root_path", ""))
        self._context.audit.write(
            user.name if user else "",
            f"{request.method} {request.scope['path'].removeprefix(root)}",
            request.state.target,
            address=find_address(request),
            via=request.state.visitor.via,
            status=status,
            error=request.state.error,
        )


def _list_sections(routes: Sequence[BaseRoute]) -> frozenset[str]:
    """The first segments of all paths."""
    return frozenset(route.path.split("/")[1] for route in routes if isinstance(route, Route))


def _add_headers(message: Message, scope: Scope) -> None:
    headers = MutableHeaders(raw=message["headers"])
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store")
    if scope["scheme"] == "https":
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    message["headers"] = headers.raw


def _answer(endpoint: Endpoint) -> Any:
    async def answer(request: Request) -> Response:
        context: Context = request.state.context
        visitor: Visitor = request.state.visitor
        user = None
        if endpoint.role is not None:
            user = context.access.check_role(visitor, endpoint.role)
        if endpoint.method not in SAFE_METHODS:
            if endpoint.role is not None:
                context.access.check_forgery(request, visitor)
            elif request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                # Another site can't send this type without asking first.
                raise MalformedBody("Send the body as Content-Type: application/json")
        return await run_endpoint(endpoint, context, request, user.name if user else "")

    return answer


async def show_openapi(request: Request) -> Response:
    """The OpenAPI document. It holds no data, so it needs no login."""
    document = describe_api((*ENDPOINTS, *PUBLIC), request.state.context.access.cookie)
    root = str(request.scope.get("root_path", ""))
    if root:
        document["servers"] = [{"url": root}]
    return Response(msgspec.json.encode(document), media_type="application/json")


def _find_next(text: str) -> str:
    """The path to go to after a login; never another site."""
    return text if is_own_path(text) else "/"


async def _show_login(request: Request) -> Response:
    context: Context = request.state.context
    visitor: Visitor = request.state.visitor
    after = _find_next(request.query_params.get("next", "/"))
    if visitor.user is not None:
        return RedirectResponse(_base(request) + after, 303)
    response = render_login(request, next=after)
    context.access.set_visit(request, response, visitor)
    return response


async def _log_in(request: Request) -> Response:
    context: Context = request.state.context
    fields = await _read_form(request)
    after = _find_next(fields.get("next", "/"))
    request.state.target = f"name={fields.get('name', '')}"
    try:
        context.access.check_forgery(request, request.state.visitor, fields.get(CSRF_FIELD, "-"))
        session = await context.access.log_in(request, fields.get("name", ""), fields.get("password", ""))
    except RequestRefused as error:
        request.state.error = str(error)
        response = render_login(request, failed=str(error), next=after, status=error.status)
        context.access.set_visit(request, response, request.state.visitor)
        return response
    request.state.user = User(session.user, context.accounts.read().users[session.user].role)
    response = RedirectResponse(_base(request) + after, 303)
    context.access.set_session(request, response, session)
    return response


async def _log_out(request: Request) -> Response:
    context: Context = request.state.context
    fields = await _read_form(request)
    context.access.check_forgery(request, request.state.visitor, fields.get(CSRF_FIELD, "-"))
    response = RedirectResponse(f"{_base(request)}/login", 303)
    await asyncio.to_thread(context.access.end_session, request, response, request.state.visitor)
    return response


async def _change_password(request: Request) -> Response:
    context: Context = request.state.context
    visitor: Visitor = request.state.visitor
    fields = await _read_form(request)
    context.access.check_role(visitor, Role.VIEWER)
    context.access.check_forgery(request, visitor, fields.get(CSRF_FIELD, "-"))
    try:
        session = await context.access.change_password(request, visitor, fields.get("old", ""), fields.get("new", ""))
    except UttuError as error:
        request.state.error = str(error)
        return render_account(request, failed=str(error), status=find_status(error))
    response = RedirectResponse(f"{_base(request)}/account?done=password", 303)
    context.access.set_session(request, response, session)
    return response


async def _read_form(request: Request) -> dict[str, str]:
    body = await read_body(request)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise MalformedBody(f"The form can't be read: {error}") from error


def _base(request: HTTPConnection) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


async def _explain(request: Request, error: Exception) -> Response:
    problem, headers = describe_problem(error, request.url.path)
    request.state.error = problem.detail
    if problem.status >= 500 and not isinstance(error, RequestRefused):
        _log.warning("%s %s: %s", request.method, request.url.path, error)
    return problem_response(problem, headers)


async def _explain_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = {404: "There is no such page", 405: f"{request.method} is not possible here"}
    said = detail.get(error.status_code, error.detail)
    request.state.error = said
    return problem_response(make_problem(error.status_code, said, request.url.path), error.headers)


async def _explain_failure(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    problem, headers = describe_problem(error, request.url.path)
    return problem_response(problem, headers)
