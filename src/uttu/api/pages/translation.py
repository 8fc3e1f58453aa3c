"""Texts in the language of the viewer. The English text is the key; ``locale/LANGUAGE.toml`` has the others.

``t("Pause")`` in templates and in Python returns the text. Values are named: ``t("{n} of {total}", n=…, total=…)``.
Texts that are chosen from a table are marked with :func:`mark`, and translated where they are shown. A test finds every
call, so a text without a translation, and a translation without a text, fail the tests.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

LANGUAGES: Final = {"en": "English", "zh": "中文"}
"""The languages, with their names in themselves."""
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
