"""JSON, XML and feeds: deep nesting, large numbers, entities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from uttu.testing.site.hostile.model import Kind, page
from uttu.testing.site.message import JSON, XML

_MILLION: Final = 1_000_000
_MB: Final = 1024 * 1024
_RSS: Final = "application/rss+xml"
_ATOM: Final = "application/atom+xml"


def billion_laughs(element: str = "a") -> str:
    """Ten levels with ten references each expand to 10^9 copies of a word."""
    lines = ['<!ENTITY e0 "lol">']
    lines += [f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 10)]
    return f"<?xml version='1.0'?><!DOCTYPE {element} [{''.join(lines)}]><{element}>&e9;</{element}>"


def quadratic(element: str = "a", size: int = 100_000, times: int = 50_000) -> str:
    """One long entity that is referenced many times."""
    return (
        f"<?xml version='1.0'?><!DOCTYPE {element} [<!ENTITY long '{'x' * size}'>]>"
        f"<{element}>{'&long;' * times}</{element}>"
    )


def external(target: str, element: str = "a") -> str:
    """An entity that refers to an external file or URL."""
    return f"<?xml version='1.0'?><!DOCTYPE {element} [<!ENTITY x SYSTEM '{target}'>]><{element}>&x;</{element}>"


def _json(name: str, about: str, make: Callable[[], bytes | str]) -> Kind:
    return Kind(name=f"documents/json-{name}", about=about, reply=page(make, JSON), handler="json")


def _xml(
    name: str, about: str, make: Callable[[], bytes | str], content_type: str = XML, handler: str = "xpath"
) -> Kind:
    return Kind(name=f"documents/{name}", about=about, reply=page(make, content_type), handler=handler)


KINDS: Final = (
    _json("arrays", "a million nested arrays", lambda: b"[" * _MILLION),
    _json("arrays-closed", "100,000 nested arrays, closed", lambda: b"[" * 100_000 + b"]" * 100_000),
    _json("objects", "a million nested objects", lambda: b'{"a":' * _MILLION),
    _json("digits", "an integer of a million digits", lambda: b"9" * _MILLION),
    _json("fraction", "a fraction of a million digits", lambda: b"0." + b"9" * _MILLION),
    _json("exponent", "1e999999", lambda: b"1e999999"),
    _json("exponent-digits", "an exponent of a million digits", lambda: b"1e" + b"9" * _MILLION),
    _json("keys", "a million keys", lambda: "{" + ",".join(f'"{n}":0' for n in range(_MILLION)) + "}"),
    _json("keys-same", "a million times the same key", lambda: b"{" + b'"a":0,' * _MILLION + b'"a":1}'),
    _json("string", "a string of 15 MB", lambda: b'"' + b"x" * (15 * _MB) + b'"'),
    _json("escapes", "a million escapes", lambda: b'"' + b"\\u0041" * _MILLION + b'"'),
    _json("surrogates", "lone surrogates", lambda: b'"' + b"\\ud800" * 100_000 + b'"'),
    _json("numbers", "5 million numbers", lambda: b"[" + b"0," * (5 * _MILLION) + b"0]"),
    _json("empty-objects", "4 million empty objects", lambda: b"[" + b"{}," * (4 * _MILLION) + b"0]"),
    _json("nan", "NaN and Infinity", lambda: b"[NaN, Infinity, -Infinity]"),
    _json("utf16", "JSON in UTF-16", lambda: '{"a": 1}'.encode("utf-16")),
    _json("nulls", "10 MB of NUL bytes", lambda: bytes(10 * _MB)),
    _json("blanks", "15 MB of blanks", lambda: b" " * (15 * _MB)),
    _xml("xml-laughs", "a billion laughs", billion_laughs),
    _xml("xml-laughs-html", "a billion laughs as HTML", billion_laughs, "text/html"),
    _xml("xml-quadratic", "an entity of 100 KB, used 50,000 times", quadratic),
    _xml(
        "xml-entity-loop",
        "entities that refer to each other",
        lambda: "<!DOCTYPE a [<!ENTITY x '&y;'><!ENTITY y '&x;'>]><a>&x;</a>",
    ),
    _xml("xml-file", "an entity that is a local file", lambda: external("file:///etc/passwd")),
    _xml("xml-device", "an entity that is /dev/zero", lambda: external("file:///dev/zero")),
    _xml("xml-network", "an entity on another host", lambda: external("http://127.79.255.1:9/")),
    _xml(
        "xml-parameters",
        "parameter entities from outside",
        lambda: "<!DOCTYPE a [<!ENTITY % p SYSTEM 'file:///etc/passwd'> %p;]><a/>",
    ),
    _xml("xml-dtd", "a DTD on another host", lambda: "<!DOCTYPE a SYSTEM 'http://127.79.255.1:9/a.dtd'><a/>"),
    _xml(
        "xml-defaults",
        "50 MB of default attributes",
        lambda: f"<!DOCTYPE a [<!ATTLIST b x CDATA '{'y' * 1000}'>]><a>{'<b/>' * 50_000}</a>",
    ),
    _xml("xml-deep", "80,000 nested elements", lambda: b"<a>" * 80_000),
    _xml("xml-deep-1m", "a million nested elements", lambda: b"<a>" * _MILLION),
    _xml("xml-deep-closed", "80,000 nested elements, closed", lambda: b"<a>" * 80_000 + b"</a>" * 80_000),
    _xml("xml-attributes", "300,000 attributes", lambda: "<a " + " ".join(f"b{n}='1'" for n in range(300_000)) + "/>"),
    _xml(
        "xml-namespaces",
        "100,000 namespaces",
        lambda: "<a " + " ".join(f"xmlns:n{n}='u'" for n in range(100_000)) + "/>",
    ),
    _xml(
        "xml-redeclared",
        "20,000 nested elements, each with a namespace",
        lambda: "".join(f"<a xmlns:n{n}='u{n}'>" for n in range(20_000)),
    ),
    _xml("xml-siblings", "a million elements", lambda: b"<a>" + b"<b/>" * _MILLION + b"</a>"),
    _xml("xml-cdata", "a CDATA section of 15 MB", lambda: b"<a><![CDATA[" + b"]" * (15 * _MB) + b"]]></a>"),
    _xml("xml-comment", "a comment of 15 MB", lambda: b"<a><!--" + b"x" * (15 * _MB) + b"--></a>"),
    _xml("xml-charset", "an encoding that does not exist", lambda: b"<?xml version='1.0' encoding='klingon'?><a/>"),
    _xml(
        "xml-stylesheet",
        "a stylesheet on another host",
        lambda: "<?xml-stylesheet type='text/xsl' href='http://127.79.255.1:9/'?><a/>",
    ),
    _xml(
        "xml-include",
        "XInclude of a local file",
        lambda: (
            "<a xmlns:xi='http://www.w3.org/2001/XInclude'><xi:include href='file:///etc/passwd' parse='text'/></a>"
        ),
    ),
    _xml("xml-nulls", "NUL bytes in XML", lambda: b"<a>\0\0\0</a>" * 1000),
    _xml(
        "rss-items",
        "a feed of 200,000 items",
        lambda: b"<rss><channel>" + b"<item><link>http://127.79.255.1/x</link></item>" * 200_000 + b"</channel></rss>",
        _RSS,
    ),
    _xml(
        "rss-description",
        "a description of 15 MB",
        lambda: (
            b"<rss><channel><item><description>"
            + b"&lt;p&gt;" * (_MB + _MB // 2)
            + b"</description></item></channel></rss>"
        ),
        _RSS,
    ),
    _xml("rss-laughs", "a feed of a billion laughs", lambda: billion_laughs("rss"), _RSS, "sitemap_read"),
    _xml(
        "atom-links",
        "an entry of 200,000 links",
        lambda: (
            b"<feed xmlns='http://www.w3.org/2005/Atom'><entry>" + b"<link href='/x'/>" * 200_000 + b"</entry></feed>"
        ),
        _ATOM,
        "sitemap_read",
    ),
)
