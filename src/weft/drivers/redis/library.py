"""Operations that a server is taught: a folder of Lua files, run there as a whole.

They are a library of functions, loaded under a name that changes with its text, so programs of different versions do
not disturb one another. A server older than functions (Redis 6.2), or a user who may not use them, gets the same text
as a script. A server that has lost either gets it again.

The files define ``operate(arguments)``, a function of the list of all arguments.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, Final

import msgspec
import redis.exceptions as refused
import xxhash

from weft.drivers.redis.address import Client
from weft.drivers.redis.nodes import at

_LOADS: Final = 5

# Operations touch keys that they do not name. While a slot moves from one node of a cluster to another, its keys are
# here and there, and an operation would fail halfway. With a second key that is nowhere, the cluster refuses it as a
# whole until the slot has arrived.
_NEVER: Final = ":never"

# A function under this name may also run when the server is out of memory: it makes room, or takes none.
_RELIEF: Final = "_relief"


class Library(msgspec.Struct, frozen=True):
    """The text of the operations, as the server wants it."""

    name: str
    function: str
    script: str
    digest: str

    @classmethod
    def read(cls, package: str, *, relief: bool = False) -> Library:
        """From the folder ``lua`` of a package, in the order of the names. ``relief``: see :meth:`Operations.run`."""
        folder = resources.files(package).joinpath("lua")
        files = sorted((file for file in folder.iterdir() if file.name.endswith(".lua")), key=lambda file: file.name)
        text = "\n".join(file.read_text() for file in files)
        name = "weft_" + xxhash.xxh3_64_hexdigest(text.encode())
        body = "function(keys, arguments) return operate(arguments) end"
        function = f"#!lua name={name}\n{text}\nredis.register_function('{name}', {body})"
        if relief:
            function += (
                f"\nredis.register_function{{function_name='{name}{_RELIEF}', callback={body}, flags={{'allow-oom'}}}}"
            )
        script = f"{text}\nreturn operate(ARGV)"
        return cls(name, function, script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest())


class Operations:
    """A library at a server."""

    def __init__(self, client: Client, library: Library) -> None:
        self._client = client
        self._library = library
        self._functions = True

    async def run(self, key: str, arguments: list[Any], *, relief: bool = False) -> Any:
        """An operation on the keys beside ``key``; with ``relief`` even when the server is out of memory."""
        if self._functions:
            name = self._library.name + (_RELIEF if relief else "")
            try:
                for _ in range(_LOADS):
                    try:
                        return await at(self._client, key, "FCALL", name, 2, key, key + _NEVER, *arguments)
                    except refused.ResponseError as error:
                        if "Function not found" not in str(error):
                            raise
                    await at(self._client, key, "FUNCTION LOAD", "REPLACE", self._library.function)
            except refused.ResponseError as error:
                if not isinstance(error, refused.NoPermissionError) and "unknown command" not in str(error).lower():
                    raise
            self._functions = False  # there are none, or they are not permitted
        return await self._evaluate(key, arguments)

    async def _evaluate(self, key: str, arguments: list[Any]) -> Any:
        try:
            return await at(self._client, key, "EVALSHA", self._library.digest, 2, key, key + _NEVER, *arguments)
        except refused.NoScriptError:
            return await at(self._client, key, "EVAL", self._library.script, 2, key, key + _NEVER, *arguments)
