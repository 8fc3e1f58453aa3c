"""Templates: a page in the viewer's language and theme, and the fragments of it that change while one looks.

A template wraps a part that changes in ``{% call fragment("name") %} … {% endcall %}``. Rendering a page collects these
parts by name, so the live stream sends exactly what the page itself shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import jinja2
import msgspec
from markupsafe import Markup

from uttu.api.pages import charts, formatting, words
from uttu.api.pages.shapes import Role, User
from uttu.api.pages.translation import LANGUAGES, Translator
from uttu.api.settings import is_loopback

THEMES: Final = ("auto", "light", "dark")


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What all pages share: who looks at which address, in which language and theme."""

    user: User
    path: str
    """The path of the page below ``base``, without the query."""
    query: dict[str, str] = {}
    host: str = ""
    """The host name by which the viewer reaches the dashboard."""
    base: str = ""
    """The path prefix of a proxy, without a slash at the end."""
    csrf: str = ""
    language: str = "en"
    theme: str = "auto"
    has_session: bool = True
    """Whether the user can log out: not if the dashboard has no users, or by token."""
    done: str = ""
    """A message about the form that was sent before."""


class Rendered(msgspec.Struct, frozen=True):
    """A page, and the HTML of its fragments by name."""

    html: str
    fragments: dict[str, str]


@cache
def load_templates() -> jinja2.Environment:
    """The environment of all templates. Everything is escaped, and an unknown name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("uttu.api.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals |= {
        "draw_bar": charts.draw_bar,
        "draw_chart": charts.draw_chart,
        "draw_sparkline": charts.draw_sparkline,
        "draw_timeline": charts.draw_timeline,
        "languages": LANGUAGES,
        "themes": THEMES,
        "static": static_path,
    }
    environment.filters |= {
        "number": formatting.format_number,
        "bytes": formatting.format_bytes,
        "shorten": formatting.shorten,
        "out": formatting.link_out,
        "value": formatting.format_value,
        "segment": lambda text: quote(str(text), safe=""),
    }
    return environment


@cache
def static_path(name: str) -> str:
    """The path of a static file, with a part that changes when the file does, so that browsers may keep it."""
    content = (resources.files("uttu.api.pages") / "static" / name).read_bytes()
    return f"/static/{name}?{hashlib.blake2b(content, digest_size=6).hexdigest()}"


def render(template: str, frame: Frame, context: dict[str, Any]) -> Rendered:
    """Render a page."""
    t = Translator(frame.language)
    fragments: dict[str, str] = {}
    helpers: dict[str, Any] = {
        "t": t,
        "plural": t.plural,
        "frame": frame,
        "base": frame.base,
        "may_operate": frame.user.role.allows(Role.OPERATOR),
        "may_manage": frame.user.role.allows(Role.ADMIN),
        "fragment": partial(_collect, fragments),
        "link": partial(_link, frame),
        "reach": partial(_reach, frame),
        "duration": lambda seconds: formatting.format_duration(seconds, t),
        "time": lambda at, style="ago": formatting.time_tag(at, t, style),
        "say_problem": lambda problem: words.describe_problem(problem, t),
        "say_event": lambda event: words.describe_event(event, t),
        "say_wait": lambda wait: words.describe_wait(wait, t),
        "say_waiting": lambda waiting: words.describe_waiting(waiting, t),
        "label": lambda value: words.label(value, t),
        "tone": words.tone,
    }
    html = load_templates().get_template(template).render(helpers | context)
    return Rendered(html, fragments)


def _collect(
    fragments: dict[str, str], name: str, tag: str = "div", style: str = "", *, caller: Callable[[], str]
) -> Markup:
    """Wrap what a ``call`` block holds in an element with an id, and remember it."""
    body = Markup(caller())
    html = Markup('<{0} id="live-{1}" class="{2}" data-fragment>{3}</{0}>').format(Markup(tag), name, style, body)
    fragments[name] = html
    return html


def _link(frame: Frame, path: str = "", **query: Any) -> str:
    """The address of a page; of the present page if ``path`` is empty, and then with its query, changed by ``query``.

    A value of None or "" removes a name from the query.
    """
    values = {**frame.query, **query} if not path else query
    chosen = {name: str(value) for name, value in values.items() if value not in (None, "")}
    found = frame.base + (path or frame.path)
    return f"{found}?{urlencode(chosen)}" if chosen else found


def _reach(frame: Frame, url: str) -> str:
    """The address of a server beside the dashboard, as the viewer can reach it; empty if the viewer can't."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("", "0.0.0.0", "::"):
        shown = f"[{frame.host}]" if ":" in frame.host else frame.host
        return f"{parts.scheme}://{shown}:{parts.port}" if frame.host else ""
    return "" if is_loopback(host) and not is_loopback(frame.host) else url
