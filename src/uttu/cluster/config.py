"""Live configuration: versioned settings, on the tree of any :class:`~uttu.cluster.base.Coordinator`.

::

    /config/KEY…                   a setting
    /history/KEY…/n0000000012      one of its last changes: the value, who changed it, and when

A setting that is removed keeps its node, so that its version goes on.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from uttu.cluster.base import Check, Coordinator, Create, Delete, Node, Operation, Write, check_path
from uttu.errors import NodeExists, NoNode, Refused, WrongVersion

_HISTORY: Final = 20
"""Changes of a setting that are kept."""
_is_change: Final = re.compile(r"n\d{10}").fullmatch


class LiveSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, or a former value of one. ``value`` is None if it was removed."""

    key: str
    value: bytes | None
    version: int
    by: str
    at: float


class _Kept(msgspec.Struct, frozen=True):
    """How a setting is stored: the value, who wrote it, and when by the clock of its machine."""

    value: bytes | None
    by: str
    at: float
    version: int = -1


class LiveConfig:
    """Versioned settings. Keys are words between slashes, such as ``crawls/shop/delay``."""

    def __init__(self, tree: Coordinator, by: str = "") -> None:
        self._tree = tree
        self._by = by or tree.session

    async def get(self, key: str) -> LiveSetting | None:
        """The setting; None if it is not set."""
        node = await self._tree.read(_config_path(key))
        return _setting(node) if node is not None else None

    async def all(self, prefix: str = "") -> list[LiveSetting]:
        """All settings at or below a key, by key."""
        found: list[LiveSetting] = []
        waiting = [_config_path(prefix)]
        while waiting:
            path = waiting.pop()
            node = await self._tree.read(path)
            if node is not None and (setting := _setting(node)) is not None:
                found.append(setting)
            waiting += [child.path for child in await self._tree.children(path)]
        return sorted(found, key=lambda setting: setting.key)

    async def set(self, key: str, value: bytes, *, version: int | None = None) -> None:
        """Set one value.

        :param version: the version that it must have; -1 if it must not be set yet; None for any.
        :raises WrongVersion: somebody else has changed it.
        """
        await self.change({key: value}, {} if version is None else {key: version})

    async def remove(self, key: str, *, version: int | None = None) -> None:
        """:raises WrongVersion: somebody else has changed it."""
        await self.change({key: None}, {} if version is None else {key: version})

    async def change(self, values: Mapping[str, bytes | None], versions: Mapping[str, int] | None = None) -> None:
        """Set several values in one transaction; None removes one.

        :param versions: the versions that settings must have, also of settings that are not changed.
        :raises WrongVersion: somebody else has changed one of them.
        """
        versions = versions or {}
        while True:
            operations: list[Operation] = []
            for key in dict.fromkeys((*values, *versions)):
                operations += await self._operations(key, values, versions)
            try:
                await self._tree.change(*operations)
            except (NoNode, NodeExists, WrongVersion):
                await self._check(versions)
                continue  # it changed since it was read, and any version will do
            for key in values:
                await self._trim(key)
            return

    async def history(self, key: str) -> list[LiveSetting]:
        """The last ``_HISTORY`` changes of a setting, the newest first."""
        nodes = await self._changes(key)
        kept = [msgspec.msgpack.decode(node.value, type=_Kept) for node in reversed(nodes)]
        return [LiveSetting(key=key, value=each.value, version=each.version, by=each.by, at=each.at) for each in kept]

    @contextlib.asynccontextmanager
    async def watch(self, prefix: str = "") -> AsyncIterator[AsyncIterator[LiveSetting]]:
        """Hear of each change at or below a key. First come the present values."""
        async with self._tree.watch(_config_path(prefix), recursive=True) as changes:

            async def read() -> AsyncIterator[LiveSetting]:
                async for change in changes:
                    if change.node is not None and change.node.value:  # others only have children
                        yield _decode_setting(change.node)

            yield read()

    async def _operations(
        self, key: str, values: Mapping[str, bytes | None], versions: Mapping[str, int]
    ) -> Sequence[Operation]:
        path, demanded = _config_path(key), versions.get(key)
        node = await self._tree.read(path)
        present = -1 if node is None or _setting(node) is None else node.version
        if demanded is not None and demanded != present:
            raise WrongVersion(f"{key} has version {present}, not {demanded}: somebody else has changed it")
        if key not in values:
            return [Check(path, node.version)] if node is not None else []
        value = values[key]
        version = node.version + 1 if node is not None else 0
        kept = msgspec.msgpack.encode(_Kept(value, self._by, time.time(), version))
        if value is None and node is None:
            return []
        write: Operation = Create(path, kept) if node is None else Write(path, kept, node.version)
        return [write, Create(f"{_history_path(key)}/n", kept, sequential=True)]

    async def _check(self, versions: Mapping[str, int]) -> None:
        for key, demanded in versions.items():
            setting = await self.get(key)
            present = -1 if setting is None else setting.version
            if present != demanded:
                raise WrongVersion(f"{key} has version {present}, not {demanded}: somebody else has changed it")

    async def _changes(self, key: str) -> list[Node]:
        """The nodes of the last changes; other children belong to settings below this one."""
        return [node for node in await self._tree.children(_history_path(key)) if _is_change(node.name)]

    async def _trim(self, key: str) -> None:
        for node in (await self._changes(key))[:-_HISTORY]:
            with contextlib.suppress(NoNode):
                await self._tree.change(Delete(node.path))


def _setting(node: Node) -> LiveSetting | None:
    """The setting in a node; None if it was removed, or if the node only has children."""
    if not node.value:
        return None
    setting = _decode_setting(node)
    return setting if setting.value is not None else None


def _decode_setting(node: Node) -> LiveSetting:
    kept = msgspec.msgpack.decode(node.value, type=_Kept)
    key = node.path.removeprefix("/config/")
    return LiveSetting(key=key, value=kept.value, version=node.version, by=kept.by, at=kept.at)


def _config_path(key: str) -> str:
    return check_path(f"/config/{key}" if key else "/config")


def _history_path(key: str) -> str:
    if not key:
        raise Refused("A setting needs a name")
    return check_path(f"/history/{key}")
