"""Pages that show what the client sent: requests, forms, cookies."""

from __future__ import annotations

from urllib.parse import parse_qs

from uttu.testing.site.message import JSON, Answer, Incoming, Reply, html, json

_FORM = """<form action="/odd/form" method="post">
<input type="hidden" name="token" value="t-123">
<label>Name <input name="name" value="Ada"></label>
<label>Colour <select name="colour"><option>red</option><option value="green" selected>Green</option></select></label>
<label>News <input type="checkbox" name="news" value="yes" checked></label>
<textarea name="note">Hello</textarea>
<button name="send" value="now">Send</button>
</form>"""


def echo(parts: list[str], incoming: Incoming) -> Reply:
    return json(
        {
            "method": incoming.method,
            "target": incoming.target,
            "headers": incoming.headers,
            "body": incoming.body.decode("latin-1"),
        }
    )


def form(parts: list[str], incoming: Incoming) -> Reply:
    """A form and, after a POST, its fields with all their values."""
    if incoming.method == "POST":
        return json(parse_qs(incoming.body.decode("utf-8", "replace"), keep_blank_values=True))
    return html("A form", _FORM)


def cookies(parts: list[str], incoming: Incoming) -> Reply:
    match parts[1:]:
        case []:
            return json(incoming.cookies)
        case ["set"]:
            headers = tuple(
                ("Set-Cookie", f"{_plain(name)}={_plain(value)}; Path=/") for name, value in incoming.query.items()
            )
        case ["delete"]:
            headers = tuple(("Set-Cookie", f"{_plain(name)}=; Path=/; Max-Age=0") for name in incoming.query)
        case _:
            return None
    return Answer(b"{}\n", JSON, headers=headers)


def _plain(text: str) -> str:
    """The characters of ``text`` that a cookie can contain unquoted."""
    return "".join(
        character for character in text if character.isascii() and character.isprintable() and character != ";"
    )
