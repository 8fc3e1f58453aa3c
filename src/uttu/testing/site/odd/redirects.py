"""Redirects, correct and broken."""

from __future__ import annotations

from uttu.testing.site.message import TEXT, Answer, Incoming, Reply, html, natural, redirect
from uttu.testing.site.model import Layout


class Redirects:
    """Answers ``/odd/redirect/…``."""

    def __init__(self, layout: Layout) -> None:
        self._origins = layout.origins

    def reply(self, parts: list[str], incoming: Incoming) -> Reply:
        match parts[1:]:
            case ["0"]:
                return html("Arrived", "<p>No further.</p>")
            case ["status", code] if (status := natural(code)) and 300 <= status < 400:
                return redirect("/odd/echo", status)
            case ["loop"]:
                return redirect("/odd/redirect/loop/back")
            case ["loop", "back"]:
                return redirect("/odd/redirect/loop")
            case ["self"]:
                return redirect(incoming.target)
            case ["endless"]:
                return redirect(f"/odd/redirect/endless?n={int(incoming.number('n', 0)) + 1}")
            case ["cookie"]:
                if incoming.cookies.get("visited") == "yes":
                    return html("Arrived", "<p>With the cookie.</p>")
                return redirect("/odd/redirect/cookie", 302, ("Set-Cookie", "visited=yes; Path=/"))
            case ["relative"]:
                return redirect("../redirect/0")
            case ["unicode"]:
                return redirect(_wire("/odd/redirect/0?grüße"))
            case ["host"]:
                return redirect(f"{self._origins[(incoming.host + 1) % len(self._origins)]}/odd/redirect/0")
            case ["bad"]:
                return redirect("http://[no-address:port/")
            case ["none"]:
                return Answer(b"Moved, but where?\n", TEXT, 302)
            case ["to"]:
                return redirect(_wire(incoming.query.get("url", "/")), int(incoming.number("status", 302)))
            case [steps] if number := natural(steps):
                return redirect(f"/odd/redirect/{number - 1}")
        return None


def _wire(url: str) -> str:
    """The URL for a header that is sent as Latin-1: its bytes are UTF-8, and line ends are removed."""
    return url.replace("\r", "").replace("\n", "").encode().decode("latin-1")
