"""The members of a group, on the tree of any :class:`~uttu.cluster.base.Coordinator`.

::

    /members/GROUP/NAME            ephemeral: a member, with its data
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from uttu.cluster.base import ChangeKind, Coordinator, Create, Delete, Node, check_path, from_word, to_word
from uttu.cluster.session import wait_until_connected
from uttu.errors import ClusterError, NodeExists

_RETRY_SECONDS: Final = 0.1


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group. ``since`` is by the clock of the server."""

    name: str
    data: bytes
    since: float
    token: int


class MemberChange(msgspec.Struct, frozen=True):
    """A member came (or is there already), changed its data, or is gone."""

    kind: ChangeKind
    name: str
    member: Member | None = None


class Membership:
    """The members of a group."""

    def __init__(self, tree: Coordinator, group: str) -> None:
        self.group = group
        self._tree = tree
        self._path = check_path(f"/members/{to_word(group)}")

    @contextlib.asynccontextmanager
    async def join(self, name: str, data: bytes = b"") -> AsyncIterator[None]:
        """Be a member while the block runs. After a lost session, the member joins again by itself.

        :raises NodeExists: the group has a member of this name.
        """
        path = check_path(f"{self._path}/{to_word(name)}")
        await self._create(path, data)
        task = asyncio.create_task(self._keep(path, data))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(ClusterError):
                if (node := await self._tree.read(path)) is not None and node.owner == self._tree.session:
                    await self._tree.change(Delete(path))

    async def members(self) -> list[Member]:
        return [_member(node) for node in await self._tree.children(self._path)]

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[MemberChange]]:
        """Hear who comes and goes. First come those who are there."""
        async with self._tree.watch(self._path, recursive=True) as changes:

            async def read() -> AsyncIterator[MemberChange]:
                async for change in changes:
                    if change.path != self._path:
                        name = from_word(change.path.rpartition("/")[2])
                        yield MemberChange(change.kind, name, _member(change.node) if change.node else None)

            yield read()

    async def _create(self, path: str, data: bytes) -> None:
        try:
            await self._tree.change(Create(path, data, ephemeral=True))
        except NodeExists as error:
            node = await self._tree.read(path)
            if node is None or node.owner != self._tree.session:
                raise NodeExists(
                    f"The group {self.group!r} has a member named {from_word(path.rpartition('/')[2])!r}"
                ) from error

    async def _keep(self, path: str, data: bytes) -> None:
        """Join again after each lost session."""
        session = self._tree.session
        while True:
            lost = asyncio.Event()
            stop = self._tree.listen(lambda state, lost=lost: lost.set())  # type: ignore[misc]
            try:
                if self._tree.session == session:
                    await lost.wait()
                await wait_until_connected(self._tree)
                if self._tree.session != session:
                    await self._create(path, data)
                    session = self._tree.session
            except ClusterError:
                # The former node of this member may still be there, until its session ends.
                await asyncio.sleep(_RETRY_SECONDS)
            finally:
                stop()


def _member(node: Node) -> Member:
    return Member(name=from_word(node.name), data=node.value, since=node.at, token=node.created)
