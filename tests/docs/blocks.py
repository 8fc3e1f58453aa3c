"""The pages of the documentation, and the code blocks in them.

A comment above a block says how it is tested::

    <!-- test: crawl items=200 -->   python: a spider in full, crawled; these numbers must come out
    <!-- test: run -->               python: executed; what it asserts must hold
                                     console: its commands are run, and print what is shown
                                     pycon: the same with what is typed into ``uttu shell``
    <!-- test: tests -->             python: every function test_… in it is called
    <!-- test: file shop.py -->      any: written to that file, for the blocks that follow
    <!-- test: replace shop.py -->   any: its lines take the place of those that begin with the same word

A block without one is only looked at: Python must compile, commands and their options must exist,
TOML must be settings. The address of the site in all pages is 127.0.0.1:8000, that of Redis 127.0.0.1:6379.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SITE: Final = "127.0.0.1:8000"
SERVER: Final = "127.0.0.1:6379"
KINDS: Final = frozenset({"crawl", "run", "tests", "file", "replace"})

_fence: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_marker: Final = re.compile(r"<!-- *test: *(.*?) *-->\s*\Z")
# What differs from one run to the next: times, durations, processes.
_CHANGING: Final = (
    (re.compile(r"\d\d:\d\d:\d\d(?=,)"), "TIME"),
    (re.compile(r"\b(?:now|(?:in )?[\d.,]+ (?:ms|s|min|h|days)(?: ago)?)(?=\W|$)"), "SPAN"),
)
_comment: Final = re.compile(r"\s+# .*")
_numbers: Final = re.compile(r"\d[\d.,]*")


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass
class Block:
    """One code block; ``kind`` and ``options`` are what its comment says."""

    page: Path
    line: int
    language: str
    text: str
    kind: str = ""
    options: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass
class Command:
    """A line of a console block after its ``$``, and the lines shown below it."""

    line: str
    shown: list[str]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _fence.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _fence.finditer(text):
        before = text[: found.start()]
        block = Block(page, before.count("\n") + 1, found[2], found[3])
        if marker := _marker.search(before):
            block.kind, *words = marker[1].split()
            for word in words:
                name, _, value = word.partition("=")
                block.options[name] = value
        yield block


def markers(page: Path) -> int:
    """How many comments of this kind a page has; each must stand above a block."""
    return page.read_text(encoding="utf-8").count("<!-- test:")


def commands(block: Block) -> list[Command]:
    """The commands of a console block: the lines after a ``$`` or, where there is none, all of them."""
    prompt = "$ " if block.text.startswith("$ ") else ""
    found: list[Command] = []
    for line in block.text.replace("\\\n", "").splitlines():
        if line.startswith(prompt):
            found.append(Command(_comment.sub("", line[len(prompt) :]), []))
        elif found:
            found[-1].shown.append(line)
    return found


def typed(block: Block) -> Command:
    """What a pycon block has after its prompts, and what it shows."""
    lines = block.text.splitlines()
    prompts = (">>> ", "... ")
    return Command(
        "".join(line[4:] + "\n" for line in lines if line.startswith(prompts)),
        [line for line in lines if not line.startswith(prompts)],
    )


def uttu_words(line: str) -> Iterator[list[str]]:
    """The words of each ``uttu …`` in a line for the shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word and set(word) <= set("|&;<>()"):
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words[:1] == ["uttu"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def missing(shown: list[str], printed: str, *, loose: bool) -> list[str]:
    """Which of the lines shown were not printed, in this order; ``...`` stands for any lines.

    Times count as equal, and with ``loose`` all numbers; so does the width of columns.
    """
    rest = iter([_levelled(line, loose) for line in printed.splitlines()])
    wanted = [line for line in shown if line.strip() not in ("", "...")]
    return [line for line in wanted if _levelled(line, loose) not in rest]


def _levelled(line: str, loose: bool) -> str:
    for pattern, word in _CHANGING:
        line = pattern.sub(word, line)
    if loose:
        line = _numbers.sub("N", line)
    return " ".join(line.split())
