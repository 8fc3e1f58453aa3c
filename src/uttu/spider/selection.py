"""Selections: the results of ``page.css`` and ``page.xpath``, with the API of parsel.

A selection is a sequence of matches: elements, or strings (texts, attributes, numbers). ``get`` and ``getall`` return
strings; for an element, its HTML or XML. Elements can be searched further. All selections of a page refer to one tree,
whether CSS or XPath made them. They are lazy: nothing is searched or serialised before it is needed.

Two bounds keep nested elements from multiplying: ``MAX_MATCHES`` matches per query within several elements, and an
:class:`OutputBudget` of characters per page.
"""

from __future__ import annotations

import re as regex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from html.entities import name2codepoint
from itertools import chain, islice
from typing import Any, Final, TypeVar, overload

Pattern = str | regex.Pattern[str]

T = TypeVar("T")

MAX_MATCHES: Final = 1_000_000
"""Matches of one query within several elements. In a deep tree, ``css("div").css("div")`` finds 500 for each."""
_MAX_CHARACTERS: Final = 32 * 1024 * 1024
_MAX_TIMES: Final = 6  # in addition, times the size of the page
_entity: Final = regex.compile(r"&(?:(?P<name>[a-z0-9]+)|#(?P<dec>[0-9]{1,9})|#x(?P<hex>[a-f0-9]{1,8}));?", regex.I)


class Selection(ABC):
    """A lazy sequence of matches, see the module."""

    __slots__ = ()

    @abstractmethod
    def css(self, query: str) -> Selection:
        """Matches within these elements, by CSS with ``::text`` and ``::attr(name)``.

        :raises ValueError: ``query`` is not a valid selector.
        """

    @abstractmethod
    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        """Matches by XPath 1.0. ``variables`` are the values of ``$name`` in the query.

        A path starts at each of these elements: ``./`` and ``.//`` go down, ``..`` up, ``//`` starts at the document.

        :raises ValueError: ``query`` is not valid XPath.
        """

    @abstractmethod
    def _strings(self) -> Iterator[str]:
        """All matches as strings, one after the other."""

    @abstractmethod
    def _get_links(self) -> list[str]:
        """The links of the matches, as they are written on the page.

        An element gives its ``href`` or else its ``src``, and nothing if it has neither. A string is itself a link.
        """

    def getall(self) -> list[str]:
        """All matches as strings."""
        return list(self._strings())

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: str) -> str: ...
    def get(self, default: str | None = None) -> str | None:
        """The first match as a string, or ``default``."""
        return next(self._strings(), default)

    @property
    @abstractmethod
    def attrib(self) -> dict[str, str]:
        """The attributes of the first match. Empty if there is no match or it is a string."""

    @property
    @abstractmethod
    def text(self) -> str:
        """All text within the first match, trimmed. Empty if there is no match."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int | slice) -> Selection: ...

    def __iter__(self) -> Iterator[Selection]:
        return (self[index] for index in range(len(self)))

    def __bool__(self) -> bool:
        return len(self) > 0

    def re(self, pattern: Pattern, replace_entities: bool = True) -> list[str]:
        """The matches of a regular expression in all strings.

        Each match gives all its groups, with "" for groups that did not take part, or the whole match if the pattern
        has no groups. If a group is named ``extract``, only this group of the first match in each string is returned.

        :param replace_entities: replace HTML entities in the results, except ``&lt;`` and ``&amp;``.
        """
        return list(self._matches(pattern, replace_entities))

    @overload
    def re_first(self, pattern: Pattern, default: None = None, replace_entities: bool = ...) -> str | None: ...
    @overload
    def re_first(self, pattern: Pattern, default: str, replace_entities: bool = ...) -> str: ...
    def re_first(self, pattern: Pattern, default: str | None = None, replace_entities: bool = True) -> str | None:
        """The first string that ``re`` returns, or ``default``."""
        return next(self._matches(pattern, replace_entities), default)

    def _matches(self, pattern: Pattern, replace_entities: bool) -> Iterator[str]:
        compiled = regex.compile(pattern)
        for value in self._strings_to_search():
            for found in _extract(compiled, value):
                yield _entity.sub(_replace_entity, found) if replace_entities and "&" in found else found

    def _strings_to_search(self) -> Iterator[str]:
        """The strings that ``re`` searches."""
        return self._strings()

    def __repr__(self) -> str:
        return f"<Selection of {len(self)}: {', '.join(repr(value[:40]) for value in islice(self._strings(), 3))}>"


class OutputBudget:
    """The HTML and text that the elements of one page may return, in characters.

    The limit is ``_MAX_CHARACTERS`` plus ``_MAX_TIMES`` the size of the page. In a tree that is 512 elements deep, the
    HTML of all elements together is 512 times as long as the page.
    """

    __slots__ = ("_remaining",)

    def __init__(self, size: int) -> None:
        self._remaining = _MAX_CHARACTERS + _MAX_TIMES * size

    def spend(self, text: str) -> str:
        """Count ``text`` and return it.

        :raises ValueError: the limit of the page is exceeded.
        """
        self._remaining -= len(text)
        if self._remaining < 0:
            raise ValueError(
                "The selected elements of this page return too much HTML and text: nested elements repeat what is "
                "inside of them. Select fewer elements."
            )
        return text


def check_matches(count: int) -> None:
    """:raises ValueError: ``count`` exceeds ``MAX_MATCHES``."""
    if count > MAX_MATCHES:
        raise ValueError(f"A query within several elements found more than {MAX_MATCHES:,} matches.")


class StringSelection(Selection):
    """Strings: texts, attributes, and values that XPath computes."""

    __slots__ = ("_values",)

    def __init__(self, values: Sequence[str]) -> None:
        self._values = values

    def css(self, query: str) -> Selection:
        return StringSelection([])

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        return self if query.strip() == "." else StringSelection([])

    def _strings(self) -> Iterator[str]:
        return iter(self._values)

    def _get_links(self) -> list[str]:
        return list(self._values)

    @property
    def attrib(self) -> dict[str, str]:
        return {}

    @property
    def text(self) -> str:
        return self._values[0].strip() if self._values else ""

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int | slice) -> Selection:
        return StringSelection(get_part(self._values, index))


class MixedSelection(Selection):
    """Elements and strings in one list, such as the result of ``//a | //a/@href``. Each part has one match."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Selection]) -> None:
        self._parts = parts

    def css(self, query: str) -> Selection:
        return MixedSelection([match for each in self._parts for match in each.css(query)])

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        return MixedSelection([match for each in self._parts for match in each.xpath(query, namespaces, **variables)])

    def _strings(self) -> Iterator[str]:
        return chain.from_iterable(each._strings() for each in self._parts)

    def _strings_to_search(self) -> Iterator[str]:
        return chain.from_iterable(each._strings_to_search() for each in self._parts)

    def _get_links(self) -> list[str]:
        return [link for each in self._parts for link in each._get_links()]

    @property
    def attrib(self) -> dict[str, str]:
        return self._parts[0].attrib if self._parts else {}

    @property
    def text(self) -> str:
        return self._parts[0].text if self._parts else ""

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int | slice) -> Selection:
        return MixedSelection(get_part(self._parts, index))


def get_part(matches: Sequence[T], index: int | slice) -> Sequence[T]:
    """``matches[index]`` as a sequence, also for a single index.

    :raises TypeError: ``index`` is a string. The message says how to select an attribute.
    """
    try:
        return matches[index] if isinstance(index, slice) else [matches[index]]
    except TypeError:
        if not isinstance(index, str):
            raise
        raise TypeError(
            f"A selection is a list of elements, not a dict. For an attribute, write .attrib.get({index!r}), or select "
            f"it with ::attr({index})."
        ) from None


def _extract(pattern: regex.Pattern[str], value: str) -> Iterator[str]:
    if "extract" in pattern.groupindex:
        first = pattern.search(value)
        if first and first["extract"] is not None:
            yield first["extract"]
        return
    for found in pattern.finditer(value):
        if pattern.groups:
            yield from found.groups("")
        else:
            yield found[0]


def _replace_entity(found: regex.Match[str]) -> str:
    name = found["name"]
    if name:
        number = 0 if name.lower() in ("lt", "amp") else name2codepoint.get(name) or name2codepoint.get(name.lower(), 0)
        return chr(number) if number else found[0]
    number = int(found["dec"]) if found["dec"] else int(found["hex"], 16)
    if number == 0 or 0xD800 <= number <= 0xDFFF:
        return "\ufffd"
    if 0x80 <= number <= 0x9F:  # browsers read these as windows-1252
        return bytes([number]).decode("cp1252", "replace")
    return chr(number) if number <= 0x10FFFF else found[0]
