"""Logging in and out by JSON. The login page uses the same functions of :class:`~uttu.api.access.Access`."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from uttu.api.access import Session, Visitor
from uttu.api.accounts import Role, User
from uttu.api.context import Context


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name and the password of a user."""

    name: str
    password: str


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's old password and the new one."""

    old: str
    new: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who is logged in. ``csrf`` goes into the header X-CSRF-Token of requests that change something."""

    user: str
    role: Role | None
    via: str
    csrf: str


def view_session(visitor: Visitor) -> SessionView:
    user = visitor.user
    return SessionView(
        user=user.name if user else "", role=user.role if user else None, via=visitor.via, csrf=visitor.csrf
    )


def _respond(view: SessionView) -> Response:
    return Response(msgspec.json.encode(view), media_type="application/json")


async def read_session(request: Request, context: Context, given: object) -> Response:
    """Who is logged in, and the CSRF token of the session."""
    return _respond(view_session(request.state.visitor))


async def log_in(request: Request, context: Context, given: Login) -> Response:
    """Start a session: sets its cookie, and returns its CSRF token."""
    request.state.target = f"name={given.name}"
    return _start(request, context, await context.access.log_in(request, given.name, given.password))


def _start(request: Request, context: Context, session: Session) -> Response:
    role = context.accounts.read().users[session.user].role
    request.state.user = User(session.user, role)
    response = _respond(SessionView(user=session.user, role=role, via="session", csrf=context.access.csrf_of(session)))
    context.access.set_session(request, response, session)
    return response


async def log_out(request: Request, context: Context, given: object) -> Response:
    """End the session: its cookie is removed, and refused from now on."""
    response = _respond(SessionView(user="", role=None, via="", csrf=""))
    await asyncio.to_thread(context.access.end_session, request, response, request.state.visitor)
    return response


async def change_own_password(request: Request, context: Context, given: NewPassword) -> Response:
    """Change one's own password. All sessions of the user end; a new one starts here."""
    session = await context.access.change_password(request, request.state.visitor, given.old, given.new)
    return _start(request, context, session)
