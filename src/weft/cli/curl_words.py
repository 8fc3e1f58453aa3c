"""A command line split into words as bash does it, as far as a pasted command needs it.

Unlike ``shlex`` it knows ``$'…'``, in which browsers write everything that is not plain ASCII.
Variables, substitutions and operators are refused: a pasted command is read, never run.
"""

from __future__ import annotations

import re
from typing import Final

_token: Final = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<continued>\\\r?\n)
    | '(?P<single>[^']*)'
    | \$'(?P<ansi>(?:[^'\\]|\\.)*)'
    | \$?"(?P<double>(?:[^"\\]|\\.)*)"
    | \\(?P<escaped>.)
    | (?P<plain>[^\s'"\\|&;<>()`$]+|\$(?![\w({'"]))
    """,
    re.DOTALL | re.VERBOSE,
)
_double_escape: Final = re.compile(r'\\(\r?\n|[$`"\\])')
_ansi_escape: Final = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{1,2})"
    r"|u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"  # JavaScript: one character
    r"|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})|(?P<o>[0-7]{1,3})"
    r"|c(?P<c>.)|(?P<e>.))",
    re.DOTALL,
)
_ANSI: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip


def split(command: str) -> list[str]:
    """The words of ``command``. Bytes that are not UTF-8 (``$'\\xff'``) come as surrogate escapes.

    :raises ValueError: a quote is not closed, or the line is more than one plain command.
    """
    words: list[str] = []
    word: str | None = None
    position = 0
    command = command.strip()
    while position < len(command):
        found = _token.match(command, position)
        if found is None:
            raise ValueError(_complaint(command, position))
        position = found.end()
        kind, text = found.lastgroup, found[found.lastgroup or 0]
        if kind == "space":
            if word is not None:
                words.append(word)
            word = None
            continue
        if kind == "continued":
            continue
        if kind == "double":
            if unsafe := re.search(r"(?<!\\)(?:\\\\)*(`|\$[\w({])", text):
                raise ValueError(f"the command uses {unsafe[1]!r} inside double quotes; only a plain command is read")
            text = _double_escape.sub(lambda escape: "" if escape[1].endswith("\n") else escape[1], text)
        elif kind == "ansi":
            text = _ansi(text)
        word = (word or "") + text
    if word is not None:
        words.append(word)
    return words


def _ansi(text: str) -> str:
    """The meaning of what stands in ``$'…'``. There, ``\\x`` is a byte and ``\\u`` a character."""
    out = bytearray()
    position = 0
    for found in _ansi_escape.finditer(text):
        out += text[position : found.start()].encode(errors="surrogateescape")
        position = found.end()
        kind, value = found.lastgroup, found[found.lastgroup or 0]
        if kind == "x":
            out.append(int(value, 16))
        elif kind == "o":
            out.append(int(value, 8) & 0xFF)
        elif kind == "low":
            pair = bytes.fromhex(found["high"] + value)
            out += pair.decode("utf-16-be").encode()
        elif kind in ("u", "U"):
            out += _character(int(value, 16))
        elif kind == "c":
            out.append(ord(value) & 0x1F)
        else:
            out += (_ANSI.get(value) or (value if value in "\\'\"?" else f"\\{value}")).encode(errors="surrogateescape")
    out += text[position:].encode(errors="surrogateescape")
    return out.decode("utf-8", "surrogateescape")


def _character(code: int) -> bytes:
    if code > 0x10FFFF:
        raise ValueError(f"\\U{code:x} is not a character")
    return chr(code).encode(errors="surrogatepass")


def _complaint(command: str, position: int) -> str:
    part = command[position : position + 20]
    if part[0] in "'\"" or part.startswith("$'"):
        return f"a quote is not closed, from {part!r} on"
    if part[0] == "\\":
        return "the command ends in a backslash"
    if part[0] in "|&;<>()":
        return f"{part[0]!r} outside of quotes: put the URL in quotes, and paste one command only"
    return f"the command uses {part!r}; only a plain command is read"
