"""The facts about a crawl that all its processes share, and their encoding in the ledger.

A ledger stores facts as text by name, so that each can be set without reading the others, on every kind of store:

    state         a value of CrawlState; absent until the crawl runs for the first time
    reason        text, or JSON of a Reason whose kind decides something
    spider file   text
    arguments flags withheld outputs pace rules settings    JSON
    began         seconds since 1970
    start_hosts   hosts separated by spaces
    seeded fed unattended    "yes", or empty
    written PATH  JSON of a FileRecord
    drain WORKER  when the worker was asked to leave, in seconds since 1970
    job ID        the number of the job's last slice, and when it ended: "3 1700000000.000"

:func:`encode_facts` and :func:`decode_facts` are the only functions that know these names and formats. Facts with other
names, which a newer version may write, are ignored and stay in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

import msgspec

from uttu.errors import StoreError
from uttu.model.crawl import CrawlState, Reason, ReasonKind, Rules, SettingValue
from uttu.model.lease import Pace


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An output file as Uttu left it; all fields are 0 if it did not exist yet.

    ``closed`` says whether the writer has closed it, so that size and modification time must match from then on.
    """

    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    closed: bool = False


class SliceMark(msgspec.Struct, frozen=True):
    """The last slice of a job, and when it ended in seconds since 1970; 0 if it has not ended."""

    number: int
    ended: float = 0.0


class CrawlFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts about a crawl. A fact that was never noted has its default."""

    state: CrawlState | None = None
    """None until the crawl runs for the first time."""
    reason: Reason = Reason()
    """Why it is in this state."""
    spider: str = ""
    file: str = ""
    """The path of the spider's file on the machine that started the crawl."""
    arguments: dict[str, str] = {}
    flags: dict[str, Any] = {}
    """Settings that were given on the command line and may be shown."""
    withheld: dict[str, bool] = {}
    """Settings that are not stored, because they may hold a password; the value says whether a flag set them."""
    settings: tuple[SettingValue, ...] = ()
    """All settings with the source of each, to show; empty if an older version started the crawl."""
    outputs: tuple[str, ...] = ()
    began: float = 0.0
    """When the crawl was started or resumed last, in seconds since 1970."""
    pace: Pace | None = None
    """The pace of new lanes."""
    rules: Rules | None = None
    start_hosts: frozenset[str] = frozenset()
    """The hosts where the crawl started, which it may fetch even if they are private."""
    seeded: bool = False
    """Whether all start requests are in the frontier."""
    fed: bool = False
    """Whether the supervisor reads more start URLs from a topic."""
    unattended: bool = False
    """Whether the crawl ended without a supervisor, so its outputs are still to be completed."""
    written: dict[str, FileRecord] = {}
    """The output files that this crawl wrote, by path."""
    draining: dict[str, float] = {}
    """The workers that an operator asked to leave, and when."""
    slices: dict[str, SliceMark] = {}
    """The last slice of each job that takes part, by the job's id."""


class FactChanges(TypedDict, total=False):
    """Facts to note; see :class:`CrawlFacts`. ``written``, ``draining`` and ``slices`` are set entry by entry."""

    state: CrawlState
    reason: Reason
    spider: str
    file: str
    arguments: dict[str, str]
    flags: dict[str, Any]
    withheld: dict[str, bool]
    settings: tuple[SettingValue, ...]
    outputs: tuple[str, ...]
    began: float
    pace: Pace
    rules: Rules
    start_hosts: frozenset[str]
    seeded: bool
    fed: bool
    unattended: bool
    written: dict[str, FileRecord]
    draining: dict[str, float]
    slices: dict[str, SliceMark]


class _Codec(msgspec.Struct, frozen=True):
    """The encoding of one fact. With a ``prefix``, each entry of a mapping is stored under the prefix and its key."""

    encode: Callable[[Any], str]
    decode: Callable[[str], Any]
    prefix: str = ""


def encode_facts(changes: FactChanges) -> dict[str, str]:
    """Return the text to store under each name."""
    stored: dict[str, str] = {}
    for name, value in changes.items():
        codec = _CODECS[name]
        if codec.prefix:
            assert isinstance(value, Mapping)
            stored |= {codec.prefix + key: codec.encode(each) for key, each in value.items()}
        else:
            stored[name] = codec.encode(value)
    return stored


def decode_facts(stored: Mapping[str, str]) -> CrawlFacts:
    """Return the facts of a ledger from what it stores.

    :raises StoreError: a fact can't be read: a newer version wrote it, or the store is damaged.
    """
    found: dict[str, Any] = {}
    for name, text in stored.items():
        try:
            if (codec := _CODECS.get(name)) is not None and not codec.prefix:
                found[name] = codec.decode(text)
                continue
            for fact, prefix in _PREFIXES.items():
                if name.startswith(prefix):
                    found.setdefault(fact, {})[name.removeprefix(prefix)] = _CODECS[fact].decode(text)
        except ValueError as error:  # msgspec's errors are ValueErrors, too
            raise StoreError(f"the crawl's {name} can't be read ({error}): is it from a newer Uttu?") from error
    return CrawlFacts(**found)


def _json(kind: Any) -> _Codec:
    decoder = msgspec.json.Decoder(kind)
    return _Codec(lambda value: msgspec.json.encode(value).decode(), decoder.decode)


def _encode_reason(reason: Reason) -> str:
    """Return plain text if that is read as the same reason, otherwise JSON."""
    text = str(reason)
    if reason.kind is ReasonKind.OTHER and _decode_reason(text) == reason:
        return text
    return msgspec.json.encode(reason).decode()


def _decode_reason(stored: str) -> Reason:
    if stored.startswith("{"):
        try:
            return _reason_decoder.decode(stored)
        except msgspec.DecodeError:
            return Reason(stored)
    return _decode_former_reason(stored)


def _decode_former_reason(stored: str) -> Reason:
    """Read the sentence that the version before stored for every kind of reason."""
    if stored in (ReasonKind.INTERRUPTED, ReasonKind.REVOKED):
        return Reason(kind=ReasonKind(stored))
    for sentence, kind in (("moved to ", ReasonKind.MOVED), ("being moved here from ", ReasonKind.MOVING)):
        if stored.startswith(sentence):
            return Reason(stored.removeprefix(sentence), kind)
    return Reason(stored)


def _encode_slice(mark: SliceMark) -> str:
    return f"{mark.number} {mark.ended:.3f}" if mark.ended else str(mark.number)


def _decode_slice(stored: str) -> SliceMark:
    number, _, ended = stored.partition(" ")
    return SliceMark(int(number), float(ended or 0))


_reason_decoder: Final = msgspec.json.Decoder(Reason)
_TEXT: Final = _Codec(str, str)
_FLAG: Final = _Codec(lambda value: "yes" if value else "", lambda stored: stored == "yes")
_CODECS: Final[dict[str, _Codec]] = {
    "state": _Codec(str, CrawlState),
    "reason": _Codec(_encode_reason, _decode_reason),
    "spider": _TEXT,
    "file": _TEXT,
    "arguments": _json(dict[str, str]),
    "flags": _json(dict[str, Any]),
    "withheld": _json(dict[str, bool]),
    "settings": _json(tuple[SettingValue, ...]),
    "outputs": _json(tuple[str, ...]),
    "began": _Codec(lambda value: str(round(value)), float),
    "pace": _json(Pace),
    "rules": _json(Rules),
    "start_hosts": _Codec(lambda hosts: " ".join(sorted(hosts)), lambda stored: frozenset(stored.split())),
    "seeded": _FLAG,
    "fed": _FLAG,
    "unattended": _FLAG,
    "written": _Codec(_json(FileRecord).encode, _json(FileRecord).decode, "written "),
    "draining": _Codec(lambda at: f"{at:.3f}", float, "drain "),
    "slices": _Codec(_encode_slice, _decode_slice, "job "),
}
_PREFIXES: Final = {name: codec.prefix for name, codec in _CODECS.items() if codec.prefix}
