"""Run a folder of Lua files on a Redis server, each call as one atomic operation.

The files are concatenated in the order of their names and define ``operate(arguments)``. They are loaded as a library
of functions (``FUNCTION LOAD``, ``FCALL``). The library's name contains a hash of its text, so programs of different
versions can share a server. A server without functions (Redis 6.2), or a user without permission for them, gets the
same text as a script (``EVALSHA``, then ``EVAL``). If the server has lost the library or the script, it is loaded
again.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, Final

import msgspec
import redis.exceptions as refused
import xxhash

from uttu.clients.redis.address import RedisClient
from uttu.clients.redis.connection import execute_at

_LOADS: Final = 5  # how many times one call loads the library before it falls back to a script

# Operations use keys that are not in the argument list of FCALL. While a slot moves between two nodes of a cluster, its
# keys are on both, and an operation would fail halfway. So a second key in the same slot is passed that never exists:
# with it, the cluster rejects the whole call (TRYAGAIN) until the slot has moved.
_MISSING_KEY: Final = ":never"

# The function with this suffix has the flag allow-oom: it runs also if the server is over maxmemory. It is for
# operations that free memory or need none.
_RELIEF_SUFFIX: Final = "_relief"


class LuaLibrary(msgspec.Struct, frozen=True):
    """The text of the operations: as a function library and as a script, with the script's SHA-1 digest."""

    name: str
    function: str
    script: str
    digest: str

    @classmethod
    def read(cls, package: str, *, relief: bool = False) -> LuaLibrary:
        """Read the folder ``lua`` of a package.

        :param relief: also register the function for calls with ``relief``; see :meth:`LuaOperations.run`.
        """
        folder = resources.files(package).joinpath("lua")
        files = sorted((file for file in folder.iterdir() if file.name.endswith(".lua")), key=lambda file: file.name)
        text = "\n".join(file.read_text() for file in files)
        name = "uttu_" + xxhash.xxh3_64_hexdigest(text.encode())
        body = "function(keys, arguments) return operate(arguments) end"
        function = f"#!lua name={name}\n{text}\nredis.register_function('{name}', {body})"
        if relief:
            function += (
                f"\nredis.register_function{{function_name='{name}{_RELIEF_SUFFIX}', callback={body}, "
                "flags={'allow-oom'}}"
            )
        script = f"{text}\nreturn operate(ARGV)"
        return cls(name, function, script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest())


class LuaOperations:
    """Calls the operations of a library on one server or cluster."""

    def __init__(self, client: RedisClient, library: LuaLibrary) -> None:
        self._client = client
        self._library = library
        self._functions = True

    async def run(self, key: str, arguments: list[Any], *, relief: bool = False) -> Any:
        """Run ``operate(arguments)`` on the node that holds ``key``.

        :param relief: run it also if the server is over maxmemory. Has no effect on servers without functions.
        """
        if self._functions:
            name = self._library.name + (_RELIEF_SUFFIX if relief else "")
            try:
                for _ in range(_LOADS):
                    try:
                        return await execute_at(
                            self._client, key, "FCALL", name, 2, key, key + _MISSING_KEY, *arguments
                        )
                    except refused.ResponseError as error:
                        if "Function not found" not in str(error):
                            raise
                    await execute_at(self._client, key, "FUNCTION LOAD", "REPLACE", self._library.function)
            except refused.ResponseError as error:
                if not isinstance(error, refused.NoPermissionError) and "unknown command" not in str(error).lower():
                    raise
            self._functions = False  # the server has no functions, or the user may not call them
        return await self._evaluate(key, arguments)

    async def _evaluate(self, key: str, arguments: list[Any]) -> Any:
        try:
            return await execute_at(
                self._client, key, "EVALSHA", self._library.digest, 2, key, key + _MISSING_KEY, *arguments
            )
        except refused.NoScriptError:
            return await execute_at(
                self._client, key, "EVAL", self._library.script, 2, key, key + _MISSING_KEY, *arguments
            )
