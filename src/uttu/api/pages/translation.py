"""Texts in the language of the viewer. The English text is the key; ``locale/LANGUAGE.toml`` has the others.

``t("Pause")`` in templates and in Python returns the text. Values are named: ``t("{n} of {total}", n=…, total=…)``.
Texts that are chosen from a table are marked with :func:`mark`, and translated where they are shown. A test finds every
call, so a text without a translation, and a translation without a text, fail the tests.

Messages of errors come from everywhere in Uttu, as finished sentences. :meth:`Translator.message` translates the
commonest ones by patterns, such as ``There is no crawl {crawl} in the store {store}``; all others stay in English.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

LANGUAGES: Final = {"en": "English", "zh": "中文"}
"""The languages, with their names in themselves."""
# Longer texts are not compared with patterns, which takes quadratic time.
_LONGEST_MESSAGE: Final = 500
# A name in braces, after re.escape.
_NAME: Final = re.compile(r"\\\{(\w+)\\\}")
COOKIE: Final = "uttu_language"


def mark(text: str) -> str:
    """Mark a text for translation, and return it unchanged."""
    return text


@cache
def load_texts(language: str) -> Mapping[str, str]:
    """The translations of a language, by English text."""
    if language == "en":
        return {}
    file = resources.files("uttu.api.pages") / "locale" / f"{language}.toml"
    texts: dict[str, str] = tomllib.loads(file.read_text("utf-8"))["texts"]
    return texts


@cache
def load_messages(language: str) -> Sequence[tuple[re.Pattern[str], str]]:
    """The patterns of messages, and their translations. The first pattern that matches counts."""
    if language == "en":
        return ()
    file = resources.files("uttu.api.pages") / "locale" / f"{language}.toml"
    messages: dict[str, str] = tomllib.loads(file.read_text("utf-8"))["messages"]
    return [(re.compile(_NAME.sub(r"(?P<\1>.+?)", re.escape(text)), re.DOTALL), to) for text, to in messages.items()]


class Translator:
    """Translates texts to one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = load_texts(language)

    def __call__(self, text: str, /, **values: Any) -> str:
        return self.fill(text, values) if values else self._texts.get(text, text)

    def fill(self, text: str, values: Mapping[str, Any]) -> str:
        """The text with these values, also if there are none."""
        return self._texts.get(text, text).format_map(values)

    def message(self, text: str) -> str:
        """A message of an error, translated if it is one of those that are known."""
        if len(text) > _LONGEST_MESSAGE:
            return text
        for pattern, translated in load_messages(self.language):
            if found := pattern.fullmatch(text):
                return translated.format_map({name: self.message(value) for name, value in found.groupdict().items()})
        return text

    def plural(self, number: float, one: str, many: str, /, **values: Any) -> str:
        """The text for a number; ``{n}`` is the number. Only ``many`` is translated."""
        if self.language == "en" and number == 1:
            return one.format_map({"n": "1", **values})
        return self(many, **{"n": f"{number:,}", **values})


def choose_language(cookie: str | None, accepted: str) -> str:
    """The language of the switch, else the first one that the browser accepts, else English.

    :param accepted: The header ``Accept-Language``.
    """
    if cookie in LANGUAGES:
        return cookie
    wanted = []
    for part in accepted.split(",")[:20]:
        tag, _, quality = part.partition(";")
        try:
            rank = float(quality.strip().removeprefix("q=") or 1)
        except ValueError:
            rank = 0.0
        wanted.append((-rank, tag.strip().lower().partition("-")[0]))
    return next((tag for rank, tag in sorted(wanted, key=lambda pair: pair[0]) if rank and tag in LANGUAGES), "en")
