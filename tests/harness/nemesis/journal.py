"""What the server wrote down of its leases: its append-only file, read back.

A server that appends every command to a file before it answers has, without wanting to, kept a journal of the crawl:
each lease that was ever handed out is there, with the worker it went to and how often the page had been lost before.
No part of Uttu writes it for the sake of the checks, and no bug in counting can hide from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from uttu.frontier.redis.crawl import decode_entry

# A journal must not be rewritten.
SETTINGS = {"auto-aof-rewrite-percentage": "0"}


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """A lease, as it was handed out. ``at`` is the server's time at which its fetch could start: that of the grant,
    or a fraction of a second later."""

    id: int
    page: str
    worker: str
    attempt: int
    losses: int
    at: float


def page_of(url: str) -> str:
    """How the checks call a page: its host without the port, which all hosts of a site share, and its path."""
    parts = urlsplit(url)
    return f"{parts.hostname}{parts.path}"


def read(folder: Path) -> list[Granted]:
    """All leases of the journal of a server whose folder this is, in order."""
    files = sorted(folder.glob("appendonlydir/*.incr.aof"), key=lambda file: int(file.name.split(".")[-3]))
    found = {}
    for file in files:
        for words in commands(file.read_bytes()):
            if words[0].upper() == b"HSET" and words[1].endswith(b":leases"):
                for number, kept in zip(words[2::2], words[3::2], strict=True):
                    found[int(number)] = _granted(int(number), kept)
    return [found[number] for number in sorted(found)]


def _granted(number: int, kept: bytes) -> Granted:
    lane, *_, attempt, losses, entry, worker, start = msgspec.msgpack.decode(kept)
    page = page_of(decode_entry(entry, lane).url)
    return Granted(id=number, page=page, worker=worker, attempt=attempt, losses=losses, at=start)


def commands(journal: bytes) -> Iterator[list[bytes]]:
    """The commands that took effect. A server that is killed may leave one half written, or a transaction without its
    end; it drops these when it starts again, and so does this."""
    held: list[list[bytes]] | None = None
    for words in _parsed(journal):
        match words[0].upper():
            case b"MULTI":
                held = []
            case b"EXEC":
                yield from held or ()
                held = None
            case _ if held is None:
                yield words
            case _:
                held.append(words)


def _parsed(journal: bytes) -> Iterator[list[bytes]]:
    at = 0
    while at < len(journal):
        if journal[at : at + 1] == b"#":  # an annotation
            at = journal.index(b"\n", at) + 1
            continue
        try:
            count, at = _number(journal, at, b"*")
            words = []
            for _ in range(count):
                size, at = _number(journal, at, b"$")
                words.append(journal[at : at + size])
                at += size + 2
        except ValueError:
            return
        if at > len(journal):
            return
        yield words


def _number(journal: bytes, at: int, mark: bytes) -> tuple[int, int]:
    if journal[at : at + 1] != mark:
        raise ValueError(f"no {mark!r} at {at}")
    end = journal.index(b"\r\n", at)
    return int(journal[at + 1 : end]), end + 2


def lost(leases: Iterable[Granted]) -> list[Granted]:
    """The leases that ended without an outcome: the page's next lease counts one loss more."""
    by_page: defaultdict[str, list[Granted]] = defaultdict(list)
    for lease in leases:
        by_page[lease.page].append(lease)
    return [
        lease
        for of_page in by_page.values()
        for lease, following in pairwise(of_page)
        if following.losses > lease.losses
    ]


def last(leases: Sequence[Granted]) -> dict[str, Granted]:
    """The last lease of each page."""
    return {lease.page: lease for lease in leases}
