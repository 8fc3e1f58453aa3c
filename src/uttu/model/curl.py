"""Parse a pasted ``curl …`` command into a :class:`Request`.

Browsers' developer tools copy a request "as cURL (bash)". This module reads these commands, and those that people write
by hand. It splits the command into words like bash. Unlike ``shlex`` it supports ``$'…'``, which browsers use for
everything that is not plain ASCII. Variables, substitutions and operators are refused: the command is parsed, never
run. Options about output, verbosity and connection do not change the request and are skipped. Options that a
:class:`Request` can't express are refused, never ignored.
"""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import quote

from uttu.model import Request

_TOKEN: Final = re.compile(
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
_DOUBLE_ESCAPE: Final = re.compile(r'\\(\r?\n|[$`"\\])')
_ANSI_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{1,2})"
    r"|u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"  # JavaScript: one character
    r"|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})|(?P<o>[0-7]{1,3})"
    r"|c(?P<c>.)|(?P<e>.))",
    re.DOTALL,
)
_ANSI: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def split_words(command: str) -> list[str]:
    """Split a command into words. Bytes that are not UTF-8 (``$'\\xff'``) become surrogate escapes.

    :raises ValueError: a quote is not closed, or the line is more than one plain command.
    """
    words: list[str] = []
    word: str | None = None
    position = 0
    command = command.strip()
    while position < len(command):
        match = _TOKEN.match(command, position)
        if match is None:
            raise ValueError(_describe_error(command, position))
        position = match.end()
        kind, text = match.lastgroup, match[match.lastgroup or 0]
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
            text = _DOUBLE_ESCAPE.sub(lambda escape: "" if escape[1].endswith("\n") else escape[1], text)
        elif kind == "ansi":
            text = _decode_ansi(text)
        word = (word or "") + text
    if word is not None:
        words.append(word)
    return words


def _decode_ansi(text: str) -> str:
    """Decode the text inside ``$'…'``, where ``\\x`` is a byte and ``\\u`` a character."""
    out = bytearray()
    position = 0
    for match in _ANSI_ESCAPE.finditer(text):
        out += text[position : match.start()].encode(errors="surrogateescape")
        position = match.end()
        kind, value = match.lastgroup, match[match.lastgroup or 0]
        if kind == "x":
            out.append(int(value, 16))
        elif kind == "o":
            out.append(int(value, 8) & 0xFF)
        elif kind == "low":
            pair = bytes.fromhex(match["high"] + value)
            out += pair.decode("utf-16-be").encode()
        elif kind in ("u", "U"):
            out += _encode_character(int(value, 16))
        elif kind == "c":
            out.append(ord(value) & 0x1F)
        else:
            out += (_ANSI.get(value) or (value if value in "\\'\"?" else f"\\{value}")).encode(errors="surrogateescape")
    out += text[position:].encode(errors="surrogateescape")
    return out.decode("utf-8", "surrogateescape")


def _encode_character(code: int) -> bytes:
    if code > 0x10FFFF:
        raise ValueError(f"\\U{code:x} is not a character")
    return chr(code).encode(errors="surrogatepass")


def _describe_error(command: str, position: int) -> str:
    part = command[position : position + 20]
    if part[0] in "'\"" or part.startswith("$'"):
        return f"a quote is not closed, from {part!r} on"
    if part[0] == "\\":
        return "the command ends in a backslash"
    if part[0] in "|&;<>()":
        return f"{part[0]!r} outside of quotes: put the URL in quotes, and paste one command only"
    return f"the command uses {part!r}; only a plain command is read"


def _split_names(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _parse_pairs(pairs: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in pairs.split())


# Short options and their long names.
_SHORT: Final = _parse_pairs("""
H=header X=request d=data b=cookie A=user-agent e=referer u=user x=proxy U=proxy-user G=get I=head F=form
T=upload-file r=range o=output w=write-out m=max-time c=cookie-jar E=cert D=dump-header k=insecure L=location
s=silent S=show-error i=include v=verbose f=fail g=globoff N=no-buffer O=remote-name J=remote-header-name
j=junk-session-cookies #=progress-bar 0=http1.0 1=tlsv1 2=sslv2 3=sslv3 4=ipv4 6=ipv6 q=disable a=append n=netrc
""")
_DATA: Final = _split_names("data data-ascii data-raw data-binary data-urlencode json")
# Options with a value that a request needs.
_USED: Final = _DATA | _split_names("""
header request cookie user-agent referer user proxy proxy-user url range socks5 socks5-hostname
""")
# Options with a value that do not change the request.
_SKIPPED: Final = _split_names("""
output write-out max-time connect-timeout cookie-jar cert key cacert capath ciphers dump-header retry retry-delay
retry-max-time max-redirs limit-rate resolve connect-to interface keepalive-time max-filesize output-dir stderr
trace trace-ascii tls-max noproxy dns-servers speed-limit speed-time expect100-timeout happy-eyeballs-timeout-ms
""")
# Options without a value. Each may be written with "no-" in front.
_FLAGS: Final = _split_names("""
get head insecure location silent show-error include verbose fail globoff no-buffer remote-name remote-header-name
junk-session-cookies progress-bar ipv4 ipv6 disable append compressed compressed-ssh basic path-as-is http0.9
http1.0 http1.1 http2 http2-prior-knowledge http3 no-keepalive location-trusted fail-with-body tcp-nodelay tlsv1
tlsv1.0 tlsv1.1 tlsv1.2 tlsv1.3 sslv2 sslv3 ssl raw no-progress-meter tr-encoding styled-output create-dirs parallel
post301 post302 post303 no-sessionid no-alpn proxy-insecure ssl-no-revoke remote-time show-headers
""")
# Options that a request cannot express.
_REFUSED: Final = {
    "form": "multipart forms",
    "form-string": "multipart forms",
    "upload-file": "uploads of files",
    "config": "files of options",
    "netrc": "logins from files",
    "next": "several requests in one command",
}
# Headers that the fetcher sets itself, by the encodings it can read and the body it sends.
_OWN_HEADERS: Final = frozenset({"accept-encoding", "content-length", "connection", "transfer-encoding"})
_FORM: Final = "application/x-www-form-urlencoded"
_match_scheme: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://").match


def parse_curl(command: str) -> Request:
    """The request that ``command`` makes.

    :raises ValueError: it is not a curl command, or has an option that a Request can't express; the message names it.
    """
    words = split_words(command)
    if not words or words[0] not in ("curl", "curl.exe"):
        raise ValueError("not a curl command: it must begin with 'curl'")
    options, flags, urls = _parse_options(words[1:])
    urls += [value for name, value in options if name == "url"]
    if len(urls) != 1:
        raise ValueError("the curl command has no URL" if not urls else f"the curl command has several URLs: {urls}")
    last_values = dict(options)
    headers, cookies = _parse_headers(options)
    data = _build_body(options)
    url = urls[0] if _match_scheme(urls[0]) else f"http://{urls[0]}"
    method = "GET"
    if data is not None and "get" in flags:
        bare, hash_, fragment = url.partition("#")
        url = f"{bare}{'&' if '?' in bare else '?'}{data}{hash_}{fragment}"
        data = None
    elif data is not None:
        method = "POST"
        headers.setdefault("content-type", ("Content-Type", "application/json" if "json" in last_values else _FORM))
        if "json" in last_values:
            headers.setdefault("accept", ("Accept", "application/json"))
    if "head" in flags:
        method = "HEAD"
    return Request.to(
        url,
        method=last_values.get("request", method),
        headers=dict(headers.values()),
        body=(data or "").encode(errors="surrogateescape"),
        cookies=cookies,
        proxy=_build_proxy(last_values),
    )


def _parse_options(words: list[str]) -> tuple[list[tuple[str, str]], set[str], list[str]]:
    """The options with their values in order, the flags, and the remaining words, which are the URLs."""
    options: list[tuple[str, str]] = []
    flags: set[str] = set()
    urls: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word.startswith("--") and len(word) > 2:
            names, value = [word[2:]], None
        elif word.startswith("-") and len(word) > 1:
            names, value = _split_cluster(word)
        else:
            urls.append(word)
            continue
        for name in names:
            if name in _REFUSED:
                raise ValueError(f"{word}: {_REFUSED[name]} cannot be expressed in a request")
            if name in _FLAGS or name.removeprefix("no-") in _FLAGS:
                flags.add(name)
            elif name in _USED or name in _SKIPPED:
                option_value = value if value is not None else next(remaining, None)
                if option_value is None:
                    raise ValueError(f"{word} needs a value")
                if name in _USED:
                    options.append((name, option_value))
            else:
                raise ValueError(f"unknown curl option {word}")
    return options, flags, urls


def _split_cluster(word: str) -> tuple[list[str], str | None]:
    """Split combined short options: ``-sSL``, ``-XPOST``. The text after an option that takes a value is its value."""
    names: list[str] = []
    for position, letter in enumerate(word[1:], 1):
        name = _SHORT.get(letter)
        if name is None:
            raise ValueError(f"unknown curl option -{letter} in {word}")
        names.append(name)
        if name not in _FLAGS:
            return names, word[position + 1 :] or None
    return names, None


def _parse_headers(options: list[tuple[str, str]]) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """The headers by lower-case name (as name and value), and the cookies."""
    headers: dict[str, tuple[str, str]] = {}
    cookies: dict[str, str] = {}

    def add_header(name: str, value: str) -> None:
        key = name.lower()
        if key == "cookie":
            cookies.update(_parse_cookies(value))
        elif key not in _OWN_HEADERS and not name.startswith(":"):
            value = f"{headers[key][1]}, {value}" if key in headers else value
            headers[key] = (name, value)

    for option, value in options:
        if option == "header":
            name, colon, text = value.partition(":")
            if value.startswith("@"):
                raise ValueError(f"-H {value}: headers from a file are not supported")
            if value.startswith(":"):
                continue  # a pseudo-header of HTTP/2, which some tools copy
            if colon and text.strip():
                add_header(name.strip(), text.strip())
            elif not colon and name.endswith(";"):
                add_header(name[:-1].strip(), "")
            elif not colon:
                raise ValueError(f"-H {value!r} is not a header: it has no colon")
        elif option == "cookie":
            if "=" not in value:
                raise ValueError(f"-b {value}: cookies from a file are not supported")
            add_header("Cookie", value)
        elif option == "user":
            user = value if ":" in value else f"{value}:"
            headers["authorization"] = ("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        elif option == "user-agent":
            headers["user-agent"] = ("User-Agent", value)
        elif option == "referer":
            headers["referer"] = ("Referer", value.removesuffix(";auto"))
        elif option == "range":
            headers["range"] = ("Range", f"bytes={value}")
    return headers, cookies


def _parse_cookies(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def _build_body(options: list[tuple[str, str]]) -> str | None:
    """The body from ``-d`` and the other data options; None if the command has none."""
    parts: list[str] = []
    for name, value in options:
        if name not in _DATA:
            continue
        if value.startswith("@") and name != "data-raw":
            raise ValueError(f"--{name} {value}: data from a file is not supported")
        if name == "data-urlencode":
            value = _urlencode(value)
        parts.append(value)
    if not parts:
        return None
    return ("" if any(name == "json" for name, _ in options) else "&").join(parts)


def _urlencode(value: str) -> str:
    name, equals, content = value.partition("=")
    if not equals:
        if "@" in value:
            raise ValueError(f"--data-urlencode {value}: data from a file is not supported")
        name, content = "", value
    encoded = quote(content, safe="", errors="surrogateescape")
    return f"{name}={encoded}" if name else encoded


def _build_proxy(last_values: dict[str, str]) -> str:
    for option, scheme in (("proxy", "http"), ("socks5", "socks5"), ("socks5-hostname", "socks5h")):
        if proxy := last_values.get(option):
            url = proxy if _match_scheme(proxy) else f"{scheme}://{proxy}"
            if user := last_values.get("proxy-user"):
                name, _, password = user.partition(":")
                url = url.replace("://", f"://{quote(name, safe='')}:{quote(password, safe='')}@", 1)
            return url
    return ""
