"""Things that a server can do to a crawler, each at its own path.

Redirects
    ==========================================  =====================================================
    ``/odd/redirect/<n>``                       302 to n-1, down to 0, which answers 200
    ``/odd/redirect/status/<code>``             that status (301, 302, 303, 307, 308) to ``/odd/echo``
    ``/odd/redirect/loop``                      to ``…/loop/back``, which leads back here
    ``/odd/redirect/self``                      to itself, always
    ``/odd/redirect/endless?n=1``               to n+1, a new URL every time
    ``/odd/redirect/cookie``                    to itself with a cookie; 200 if the client sends it
    ``/odd/redirect/relative``                  Location is a relative path
    ``/odd/redirect/unicode``                   Location has raw UTF-8 bytes
    ``/odd/redirect/host``                      to the next host (to host 0 from the last one)
    ``/odd/redirect/bad``                       Location is not a URL
    ``/odd/redirect/none``                      302 without Location
    ``/odd/redirect/to?url=…&status=302``       to the given URL
    ==========================================  =====================================================

Statuses, and servers that count requests (per host and path)
    ==========================================  =====================================================
    ``/odd/status/<code>``                      that status; 1xx is sent before a 200
    ``/odd/flaky/<key>?fails=2&status=503``     fails that often, then 200
    ``/odd/429/<key>?times=2&after=1``          429 that often with Retry-After, then 200; ``&date=1``
                                                gives the time as a date
    ==========================================  =====================================================

Slow and broken
    ==========================================  =====================================================
    ``/odd/slow?seconds=1``                     the head comes late
    ``/odd/drip?seconds=1&bytes=10``            the body comes byte by byte, over that time
    ``/odd/stall``                              half of the body, then nothing more
    ``/odd/hang``                               no answer at all
    ``/odd/close``                              hangs up without an answer
    ``/odd/reset``                              TCP reset in the middle of the body
    ``/odd/truncated``                          body shorter than Content-Length; ``?chunked=1``: a
                                                chunked body without its end
    ``/odd/garbage``                            an answer that is not HTTP
    ``/odd/headers?bytes=100000``               a head of that size
    ==========================================  =====================================================

Bodies
    ==========================================  =====================================================
    ``/odd/chunked``                            a correct chunked body
    ``/odd/huge?bytes=100000000``               that many bytes, with Content-Length
    ``/odd/endless``                            an endless chunked body
    ``/odd/bomb?mb=1024``                       gzip: a kilobyte on the wire for each megabyte
    ``/odd/encoding/<name>``                    Content-Encoding: see :mod:`.encodings`
    ``/odd/charset/<name>``                     text in many charsets: see :mod:`.charsets`
    ``/odd/type/<name>``                        ``json``, ``xml``, ``pdf``, ``text``, ``empty`` (no body),
                                                ``none`` (no Content-Type), ``wrong`` (html as octet-stream)
    ==========================================  =====================================================

Pages that show what the client sent
    ==========================================  =====================================================
    ``/odd/echo``                               method, target, headers and body as JSON
    ``/odd/form``                               a form that posts to itself; a post gives its fields
    ``/odd/cookies``                            the cookies as JSON
    ``/odd/cookies/set?name=value``             sets them; ``/odd/cookies/delete?name`` expires them
    ``/odd/robots.txt``                         the default robots.txt, as the target of a redirect
    ==========================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable

from uttu.testing.site.discovery import robots_text
from uttu.testing.site.message import TEXT, Answer, Incoming, Reply, html
from uttu.testing.site.model import Layout
from uttu.testing.site.odd.bodies import bodies, typed
from uttu.testing.site.odd.broken import broken
from uttu.testing.site.odd.charsets import CHARSETS, charset
from uttu.testing.site.odd.encodings import ENCODINGS, bomb, encoding
from uttu.testing.site.odd.mirror import cookies, echo, form
from uttu.testing.site.odd.redirects import Redirects
from uttu.testing.site.odd.statuses import Statuses

Room = Callable[[list[str], Incoming], Reply]

_EXAMPLES = (
    "redirect/3",
    "redirect/status/301",
    "redirect/status/302",
    "redirect/status/303",
    "redirect/status/307",
    "redirect/status/308",
    "redirect/loop",
    "redirect/self",
    "redirect/endless?n=1",
    "redirect/cookie",
    "redirect/relative",
    "redirect/unicode",
    "redirect/host",
    "redirect/bad",
    "redirect/none",
    "redirect/to?url=/shop/",
    "status/404",
    "status/410",
    "status/500",
    "flaky/a?fails=2&amp;status=503",
    "429/a?times=2&amp;after=1",
    "slow?seconds=1",
    "drip?seconds=1&amp;bytes=10",
    "stall",
    "hang",
    "close",
    "reset",
    "truncated",
    "garbage",
    "headers?bytes=100000",
    "chunked",
    "huge?bytes=100000000",
    "endless",
    "bomb?mb=1024",
    *(f"encoding/{name}" for name in ENCODINGS),
    *(f"charset/{name}" for name in CHARSETS),
    *(f"type/{name}" for name in ("json", "xml", "pdf", "text", "empty", "none", "wrong")),
    "echo",
    "form",
    "cookies",
    "cookies/set?name=value",
    "cookies/delete?name",
)


class Oddities:
    """Routes a path to its oddity. ``/odd/`` links to all of them."""

    def __init__(self, layout: Layout) -> None:
        statuses = Statuses()
        self._layout = layout
        self._rooms: dict[str, Room] = {
            "": self._index,
            "redirect": Redirects(layout).reply,
            "status": statuses.status,
            "flaky": statuses.flaky,
            "429": statuses.too_many,
            "encoding": encoding,
            "charset": charset,
            "bomb": bomb,
            "type": typed,
            "echo": echo,
            "form": form,
            "cookies": cookies,
            "robots.txt": self._robots,
            **dict.fromkeys(("chunked", "huge", "endless", "headers"), bodies),
            **dict.fromkeys(("slow", "drip", "stall", "hang", "close", "reset", "truncated", "garbage"), broken),
        }

    def reply(self, incoming: Incoming) -> Reply:
        parts = incoming.path.split("/")[2:] or ["?"]
        room = self._rooms.get(parts[0])
        return room(parts, incoming) if room else None

    def _index(self, parts: list[str], incoming: Incoming) -> Reply:
        links = "".join(f'<li><a href="/odd/{path}">{path}</a></li>\n' for path in _EXAMPLES)
        return html("Oddities", f"<ul>\n{links}</ul>")

    def _robots(self, parts: list[str], incoming: Incoming) -> Reply:
        return Answer(robots_text(self._layout.site, self._layout.origins[incoming.host]).encode(), TEXT)
