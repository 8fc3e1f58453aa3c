"""The addresses of servers, as they may be shown."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

# As Redis' driver reads it: the login ends at the last @, and may have any character, a ? included. Where another reads
# it otherwise, too much is hidden.
_LOGIN: Final = re.compile(r"(:/*[^:]*:).*@", re.DOTALL)
_OPTION: Final = re.compile(r"([?&]([^=&?]*)=)([^&]*)")


def masked(url: str) -> str:
    """The URL of a server without its passwords; options that are URLs with a login are hidden as a whole."""
    return _OPTION.sub(_hidden, _LOGIN.sub(r"\1***@", url))


def _hidden(option: re.Match[str]) -> str:
    name, value = unquote(option[2]).lower(), unquote(option[3])
    return f"{option[1]}***" if "password" in name or "@" in value else option[0]
