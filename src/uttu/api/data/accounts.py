"""Users, tokens and the audit log."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from uttu.api.accounts import AccountRow, Role
from uttu.api.audit import AuditPage
from uttu.api.context import Context
from uttu.errors import UsageError

Password = Annotated[str, msgspec.Meta(max_length=1024)]
AccountName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class ActionDone(msgspec.Struct, frozen=True):
    """An action was done. ``said`` tells it in words."""

    said: str


class NewToken(msgspec.Struct, frozen=True):
    """A new token. It is shown once; only its hash is stored."""

    name: str
    role: Role
    token: str


async def read_users(context: Context) -> list[AccountRow]:
    """All users, then all tokens, by name."""
    return context.accounts.list_rows()


async def add_user(context: Context, name: AccountName, password: Password, role: Role, by: str = "") -> ActionDone:
    """Add a user.

    The first user of a dashboard must be an administrator: from then on everybody has to log in.

    :raises UsageError: the name or the password can't be used, or nobody would be an administrator.
    """
    await asyncio.to_thread(context.accounts.add_user, name, password, role)
    return ActionDone(f"{name} is added as {role}")


async def change_password(context: Context, name: AccountName, password: Password, by: str = "") -> ActionDone:
    """Set the password of a user, which ends the user's sessions.

    :raises UsageError: there is no such user, or the password can't be used.
    """
    await asyncio.to_thread(context.accounts.change_password, name, password)
    return ActionDone(f"{name} has a new password; all sessions of {name} are ended")


async def remove_user(context: Context, name: AccountName, by: str = "") -> ActionDone:
    """Remove a user.

    :raises UsageError: there is no such user, or it is the last administrator while others are there.
    """
    found = context.accounts.read().users
    others = [each.role for other, each in found.items() if other != name]
    if name in found and Role.ADMIN not in others and (others or by == name):
        raise UsageError(f"{name} is the last admin. Add another one first, or use: uttu dashboard user rm {name}")
    await asyncio.to_thread(context.accounts.remove_user, name)
    return ActionDone(f"{name} is removed")


async def add_token(context: Context, name: AccountName, role: Role, by: str = "") -> NewToken:
    """Make a bearer token for a program. It is shown once.

    :raises UsageError: the name can't be used, or is taken; or there is no user yet who could manage it.
    """
    if not context.accounts.read().users:
        raise UsageError("Add a user first: with a token alone, nobody could open the pages any more")
    return NewToken(name, role, await asyncio.to_thread(context.accounts.add_token, name, role))


async def remove_token(context: Context, name: AccountName, by: str = "") -> ActionDone:
    """Remove a token; it is refused from now on.

    :raises UsageError: there is no such token.
    """
    await asyncio.to_thread(context.accounts.remove_token, name)
    return ActionDone(f"The token {name} is removed")


async def read_audit(
    context: Context, limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100, before: int = 0
) -> AuditPage:
    """A page of the audit log, the latest entries first. ``before``: the ``next`` of the page before."""
    return await asyncio.to_thread(context.audit.read, limit, before)
