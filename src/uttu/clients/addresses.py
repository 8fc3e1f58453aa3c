"""Helpers for addresses: mask the passwords in URLs, and check whether a local port is free."""

from __future__ import annotations

import re
import socket
from typing import Final
from urllib.parse import unquote

# The login ends at the last "@" and may contain any character, "?" included, as in :mod:`uttu.clients.redis.address`.
# For URLs of other kinds this may mask more than the password, but never less.
_LOGIN: Final = re.compile(r"(:/*[^:]*:).*@", re.DOTALL)
_OPTION: Final = re.compile(r"([?&]([^=&?]*)=)([^&]*)")


def mask_password(url: str) -> str:
    """Replace the passwords in a server's URL by ``***``.

    The value of an option is masked as a whole if the option's name contains "password" or the value contains an ``@``
    (a URL with a login).
    """
    return _OPTION.sub(_mask_option, _LOGIN.sub(r"\1***@", url))


# The login of a web URL is between "://" and the last "@" before the path.
_WEB_LOGIN: Final = re.compile(r"(://[^/?#:@\s]*:)[^/?#\s]*@")


def mask_logins(text: str) -> str:
    """Replace the passwords of all web URLs in a text by ``***``, for logs and events.

    The URLs are those of pages or proxies. Nothing else in the text changes, so an ``@`` in a path stays. For the URL
    of a server use :func:`mask_password`.
    """
    return _WEB_LOGIN.sub(r"\1***@", text) if "@" in text else text


def _mask_option(option: re.Match[str]) -> str:
    name, value = unquote(option[2]).lower(), unquote(option[3])
    return f"{option[1]}***" if "password" in name or "@" in value else option[0]


def is_port_free(port: int, address: str = "127.0.0.1") -> bool:
    """Return whether a server can bind ``port`` now, on every IP address that ``address`` resolves to.

    :param address: an empty string stands for all interfaces.
    """
    try:
        places = socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, place in places:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(place)
    except (OSError, OverflowError):
        return False
    return True
