"""Every page with plain, empty and hostile data, for every role; and what forms do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.api.asking import ask
from tests.api.sample import SampleData
from tests.api.serving import TOKEN, create_sample_app
from tests.api.visits import PATHS, parse_page
from uttu.api.pages.forms import FORMS, parse_when
from uttu.api.pages.rendering import load_templates
from uttu.api.pages.routes import PAGES
from uttu.api.pages.shapes import Role, StartForm, User
from uttu.errors import BusUnavailable

CRAWL = "/crawls/local/shop-prices"
VIEWER, OPERATOR = User("zoe", Role.VIEWER), User("mia", Role.OPERATOR)


@pytest.mark.parametrize("path", PATHS)
class TestEveryPage:
    async def test_plain(self, path: str) -> None:
        answer = await ask(create_sample_app(), path)
        assert answer.status == 200
        assert answer.headers["cache-control"] == "no-store"

    async def test_empty_pages_say_what_to_do(self, path: str) -> None:
        assert (await ask(create_sample_app(SampleData(empty=True)), path)).status == 200

    async def test_hostile_values_are_text(self, path: str) -> None:
        answer = await ask(create_sample_app(SampleData(hostile=True)), path)
        tree = parse_page(answer.text)
        scripts = tree.xpath("//script")
        assert [script.get("src", "").partition("?")[0] for script in scripts] == ["/static/app.js"]
        assert all(image.get("src", "").startswith("/static/") for image in tree.xpath("//img"))
        for element in tree.iter():
            names = [str(name).lower() for name in element.attrib]
            assert not [name for name in names if name.startswith("on") or name == "style"]
            for name in ("href", "action", "src"):
                assert not str(element.get(name, "")).lower().startswith(("javascript:", "data:"))
        assert "49" not in re.findall(r">\{\{.*?\}\}<", answer.text)

    async def test_links_out_are_safe(self, path: str) -> None:
        answer = await ask(create_sample_app(), path)
        for link in parse_page(answer.text).xpath("//a[starts-with(@href, 'http')][@class='out']"):
            assert link.get("rel") == "noreferrer noopener"

    async def test_every_form_has_a_token(self, path: str) -> None:
        answer = await ask(create_sample_app(), path)
        for form in parse_page(answer.text).xpath("//form[@method='post']"):
            assert [field.get("value") for field in form.xpath(".//input[@name='csrf']")] == [TOKEN]

    async def test_ids_are_unique(self, path: str) -> None:
        ids = parse_page((await ask(create_sample_app(), path)).text).xpath("//@id")
        assert len(ids) == len(set(ids))

    async def test_viewers_see_no_forms_that_change_something(self, path: str) -> None:
        answer = await ask(create_sample_app(user=VIEWER), path)
        forms = parse_page(answer.text).xpath("//form[@method='post']/@action")
        assert set(forms) <= {"/preferences", "/logout", "/login", "/account"}

    async def test_behind_a_prefix(self, path: str) -> None:
        answer = await ask(create_sample_app(), path, root_path="/uttu")
        assert answer.status == 200
        tree = parse_page(answer.text)
        for address in tree.xpath("//a/@href | //form/@action | //script/@src | //link/@href"):
            assert address.startswith(("/uttu/", "#", "http://", "https://")), address


class TestAccess:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
    async def test_nobody_is_sent_to_the_login(self, page: object) -> None:
        path = re.sub(r"\{\w+\}", "x", page.path)  # type: ignore[attr-defined]
        answer = await ask(create_sample_app(user=None), path)
        assert (answer.status, answer.headers["location"].partition("?")[0]) == (303, "/login")

    @pytest.mark.parametrize("form", FORMS, ids=lambda form: form.path)
    async def test_forms_need_their_role_and_a_token(self, form: object) -> None:
        path = re.sub(r"\{\w+\}", "x", form.path)  # type: ignore[attr-defined]
        data = SampleData()
        assert (await ask(create_sample_app(data, user=None), path, {"csrf": TOKEN})).status == 303
        assert (await ask(create_sample_app(data, user=VIEWER), path, {"csrf": TOKEN})).status == 403
        assert (await ask(create_sample_app(data), path, {})).status == 403
        assert (await ask(create_sample_app(data), path, {"csrf": "wrong"})).status == 403
        assert not data.calls

    async def test_viewers_may_not_start_crawls(self) -> None:
        assert (await ask(create_sample_app(user=VIEWER), "/start")).status == 403

    async def test_operators_may_not_see_users(self) -> None:
        assert (await ask(create_sample_app(user=OPERATOR), "/users")).status == 403


class TestForms:
    async def send(self, path: str, **fields: str) -> tuple[SampleData, str]:
        data = SampleData()
        answer = await ask(create_sample_app(data), path, {"csrf": TOKEN, **fields})
        assert answer.status == 303, answer.text
        return data, answer.headers["location"]

    async def test_pause(self) -> None:
        data, to = await self.send(f"{CRAWL}/pause")
        assert data.calls == [("change_state", "local", "shop-prices", "pause", "wang")]
        assert to == f"{CRAWL}?done=pause"

    async def test_rate(self) -> None:
        data, _ = await self.send(f"{CRAWL}/rate", host="a.example", delay="0.5")
        assert data.calls == [("set_rate", "local", "shop-prices", "a.example", 0.5, "wang")]

    async def test_empty_rate_removes_the_pin(self) -> None:
        data, _ = await self.send(f"{CRAWL}/rate", host="a.example", delay="")
        assert data.calls[0][4] is None

    @pytest.mark.parametrize("delay", ["-1", "nan", "x", "inf"])
    async def test_wrong_rate(self, delay: str) -> None:
        data = SampleData()
        form = {"csrf": TOKEN, "host": "a.example", "delay": delay}
        assert (await ask(create_sample_app(data), f"{CRAWL}/rate", form)).status == 422
        assert not data.calls

    async def test_retry_of_a_group(self) -> None:
        data, to = await self.send(f"{CRAWL}/retry", kind="http", message="HTTP 503")
        assert data.calls == [("retry_dead", "local", "shop-prices", "http", "HTTP 503", "", "wang")]
        said = await ask(create_sample_app(), to)
        assert "Dead letters queued again: 5,210" in said.text

    async def test_publish(self) -> None:
        data, _ = await self.send("/queues/b/publish", topic="a.b", payload="{}", headers="x: 1\ny: 2:3")
        assert data.calls == [("publish_message", "b", "a.b", "{}", "", {"x": "1", "y": "2:3"}, False, "wang")]
        data, _ = await self.send("/queues/b/publish", topic="a.b", payload="hello", format="text")
        assert data.calls == [("publish_message", "b", "a.b", "hello", "", {}, True, "wang")]

    async def test_start(self) -> None:
        fields = {
            "file": "a.py",
            "argument.country": "de",
            "setting.delay": "1",
            "settings": "robots=false",
            "workers": "2",
        }
        data, _ = await self.send("/start", **fields)
        request: StartForm = data.calls[0][1]
        assert (request.arguments, request.workers) == ({"country": "de"}, 2)
        assert request.settings == {"delay": "1", "robots": "false"}

    async def test_token_is_shown_once(self) -> None:
        form = {"csrf": TOKEN, "name": "grafana", "role": "viewer", "kind": "token"}
        answer = await ask(create_sample_app(), "/users/add", form)
        assert answer.status == 200
        assert "uttu_8f2c" in answer.text

    async def test_message_of_an_address_is_text(self) -> None:
        answer = await ask(create_sample_app(), "/?done=rate&what=<script>alert(1)</script>")
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;" in answer.text

    async def test_too_large(self) -> None:
        body = b"csrf=" + TOKEN.encode() + b"&urls=" + b"x" * 1_100_000
        headers = {"content-type": "application/x-www-form-urlencoded"}
        assert (await ask(create_sample_app(), f"{CRAWL}/push", headers=headers, body=body)).status == 403

    @pytest.mark.parametrize("body", [b"\xff\xfe", b"[]", b"a=1&" * 2000])
    async def test_malformed(self, body: bytes) -> None:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        assert (await ask(create_sample_app(), f"{CRAWL}/push", headers=headers, body=body)).status == 403

    @pytest.mark.parametrize(
        ("text", "table"),
        [
            ("90", {"every": 90}),
            ("5m", {"every": 300}),
            ("1d", {"every": 86_400}),
            ("0 6 * * *", {"crontab": "0 6 * * *"}),
        ],
    )
    def test_times_of_schedules(self, text: str, table: dict[str, object]) -> None:
        assert parse_when(text) == table


class TestPreferences:
    async def test_language(self) -> None:
        answer = await ask(create_sample_app(), "/preferences", {"csrf": TOKEN, "language": "zh", "back": "/jobs?x=1"})
        assert answer.headers["location"] == "/jobs?x=1"
        assert answer.headers["set-cookie"].startswith("uttu_language=zh;")

    @pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", ""])
    async def test_only_own_addresses(self, back: str) -> None:
        answer = await ask(create_sample_app(), "/preferences", {"csrf": TOKEN, "theme": "dark", "back": back})
        assert answer.headers["location"] == "/"

    async def test_theme_is_applied(self) -> None:
        answer = await ask(create_sample_app(), "/", headers={"cookie": "uttu_theme=dark"})
        assert 'data-theme="dark"' in answer.text

    async def test_unknown_values_are_ignored(self) -> None:
        answer = await ask(create_sample_app(), "/", headers={"cookie": 'uttu_theme="><script>; uttu_language=xx'})
        assert answer.status == 200
        assert "data-theme" not in answer.text


class AwayData(SampleData):
    """A store that does not answer."""

    async def read_lanes(self, store: str, crawl: str, query: object) -> object:  # type: ignore[override]
        raise BusUnavailable("redis://10.0.0.5 does not answer <b>")


class TestErrors:
    async def test_page_says_what_is_away(self) -> None:
        answer = await ask(create_sample_app(AwayData()), f"{CRAWL}/hosts")
        assert answer.status == 503
        assert "does not answer &lt;b&gt;" in answer.text

    async def test_wrong_url_of_a_request(self) -> None:
        answer = await ask(create_sample_app(), f"{CRAWL}/requests?url=ftp:<x>")
        assert answer.status == 200
        assert "<x>" not in answer.text


class TestDownload:
    async def test_jsonl(self) -> None:
        answer = await ask(create_sample_app(), f"{CRAWL}/items.jsonl")
        assert answer.headers["content-disposition"] == 'attachment; filename="shop-prices.jsonl"'
        assert len(answer.text.splitlines()) == 12

    async def test_csv_has_no_formulas(self) -> None:
        answer = await ask(create_sample_app(SampleData(hostile=True)), f"{CRAWL}/items.csv")
        assert "'=HYPERLINK(1)" in answer.text

    async def test_other_formats(self) -> None:
        assert (await ask(create_sample_app(), f"{CRAWL}/items.exe")).status == 404


class TestStatic:
    async def test_files(self) -> None:
        for name in ("app.css", "app.js", "icon.svg"):
            answer = await ask(create_sample_app(), f"/static/{name}?1")
            assert answer.status == 200
            assert "immutable" in answer.headers["cache-control"]

    @pytest.mark.parametrize("name", ["../routes.py", "..%2froutes.py", "x.css", ""])
    async def test_nothing_else(self, name: str) -> None:
        assert (await ask(create_sample_app(), f"/static/{name}")).status == 404


def test_templates_have_no_inline_script_or_style() -> None:
    import uttu.api.pages

    for path in Path(uttu.api.pages.__file__).parent.rglob("*.html"):
        source = path.read_text()
        markup = "".join(text for _, kind, text in load_templates().lex(source) if kind == "data")
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?! src)", markup), path
        assert "| safe" not in source
