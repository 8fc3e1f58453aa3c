"""Every text has a translation, every translation is used, and pages in Chinese have no English left."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from string import Formatter

import pytest
from jinja2 import nodes

import uttu.api.pages
from tests.api.asking import ask
from tests.api.sample import SampleData
from tests.api.serving import create_sample_app
from tests.api.visits import PATHS, read_texts
from uttu.api.pages.rendering import load_templates
from uttu.api.pages.translation import LANGUAGES, Translator, choose_language, load_texts

FOLDER = Path(uttu.api.pages.__file__).parent
# Calls whose argument is a text to translate, and the argument's place.
_CALLS = {"t": 0, "mark": 0, "plural": 2, "fill": 0}


def find_texts() -> dict[str, str]:
    """All texts in templates and in Python, with the file of each."""
    found: dict[str, str] = {}
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                match node.func:
                    case ast.Name(name) | ast.Attribute(attr=name) if name in _CALLS:
                        arguments = node.args[_CALLS[name] :][:1]
                        found |= {
                            each.value: path.name
                            for each in arguments
                            if isinstance(each, ast.Constant) and isinstance(each.value, str)
                        }
    for path in FOLDER.rglob("*.html"):
        for call in load_templates().parse(path.read_text()).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name in _CALLS:
                texts = call.args[_CALLS[call.node.name] :][:1]
                found |= {each.value: path.name for each in texts if isinstance(each, nodes.Const)}
    return found


@pytest.mark.parametrize("language", [each for each in LANGUAGES if each != "en"])
class TestTexts:
    def test_messages_are_raised_somewhere(self, language: str) -> None:
        # Texts of several lines become one, and quotes and the format of values are dropped.
        source = "".join(path.read_text() for path in FOLDER.parents[1].rglob("*.py"))
        source = re.sub(r'"\n\s*f?"', "", source).replace("!r:.100}", "}").replace("!r:.80}", "}").replace("!r}", "}")
        known = tomllib.loads((FOLDER / "locale" / f"{language}.toml").read_text())["messages"]
        for text, translated in known.items():
            assert _names(text) == _names(translated), text
            # The name of a server comes from elsewhere.
            for part in re.split(r"\{\w+\}| (?=does not answer)", text):
                assert part.strip(":; ") in source, text

    def test_messages_are_translated(self, language: str) -> None:
        t = Translator(language)
        for text, kept in (
            ("The broker of jobs does not answer: is the server running?", ""),
            ("redis://h:1/0 does not answer: is the server running?", "redis://h:1/0"),
            ("The broker kafka-h can't be reached: h:9092: Connection refused. Is the server running?", "h:9092"),
            ("There is no crawl 'x' in the store local", "'x'"),
        ):
            found = t.message(text)
            assert kept in found
            assert not re.search("answer|server|broker of|There|refused", found), found
        assert t.message("Another message") == "Another message"
        assert Translator("en").message("There is no crawl 'x' in the store local").startswith("There")

    def test_every_text_is_translated(self, language: str) -> None:
        missing = {text: file for text, file in find_texts().items() if text not in load_texts(language)}
        assert not missing, f"Add these to locale/{language}.toml: {missing}"

    def test_every_translation_is_used(self, language: str) -> None:
        stale = load_texts(language).keys() - find_texts().keys()
        assert not stale, f"Remove these from locale/{language}.toml: {stale}"

    def test_values_have_the_same_names(self, language: str) -> None:
        for text, translated in load_texts(language).items():
            assert _names(text) == _names(translated), text


def _names(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


# Texts that are the same in Chinese: names of files, formats and protocols.
_SAME = {text for text, translated in load_texts("zh").items() if text == translated}


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_chinese_pages_have_no_english_left(path: str, empty: bool) -> None:
    app = create_sample_app(SampleData(empty=empty))
    answer = await ask(app, path, headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.5"})
    assert answer.status == 200
    known = find_texts().keys() - _SAME
    left = [text for text in read_texts(answer.text) if text in known and re.search("[a-zA-Z]{2}", text)]
    assert not left


# What templates may say without a translation: names, and values that people type as they are.
_LITERAL = {
    *(
        "Uttu",
        "EN",
        "JSONL",
        "CSV",
        "UTC",
        "true",
        "false",
        "uttu dashboard user add NAME",
        "s",
        "g",
        "o",
        "q",
        "j",
        "n",
    ),
    *("https://example.org/", "items.jsonl", "redis://127.0.0.1:6379/0", "0 6 * * *", '["spider.py"]', "{}", "[]"),
    *("robots=true", "uttu.crawl", "uttu fetch URL"),
}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.html")), ids=lambda path: path.name)
def test_templates_have_no_text_outside_of_translations(path: Path) -> None:
    source = load_templates().lex(path.read_text())
    # Expressions become a mark, so that what is around them keeps its place in the markup.
    markup = "".join(text if kind == "data" else "\0" for _, kind, text in source)
    spoken = re.findall(r'\b(?:placeholder|title|aria-label|alt|data-confirm|data-label)="([^"]*)"', markup)
    shown = re.sub(r"<[^>]*>", "\1", markup).split("\1") + spoken
    texts = {part.strip(" ·\n") for text in shown for part in text.split("\0")}
    assert not {text for text in texts if re.search("[A-Za-z]", text)} - _LITERAL


class TestChoice:
    def test_switch_wins(self) -> None:
        assert choose_language("en", "zh-CN") == "en"

    @pytest.mark.parametrize(
        ("accepted", "chosen"),
        [("zh-CN,zh;q=0.9,en;q=0.8", "zh"), ("de,en;q=0.5,zh;q=0.7", "zh"), ("fr", "en"), ("", "en"), ("zh;q=x", "en")],
    )
    def test_browser_decides(self, accepted: str, chosen: str) -> None:
        assert choose_language(None, accepted) == chosen

    def test_unknown_switch_is_ignored(self) -> None:
        assert choose_language("xx", "zh") == "zh"


class TestPlural:
    def test_english(self) -> None:
        t = Translator("en")
        assert t.plural(1, "{n} page", "{n} pages") == "1 page"
        assert t.plural(2000, "{n} page", "{n} pages") == "2,000 pages"

    def test_chinese_has_one_form(self) -> None:
        assert Translator("zh").plural(1, "{n} page", "{n} pages") == Translator("zh")("{n} pages", n="1")
