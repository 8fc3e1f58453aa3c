"""All that is tried: the kinds of hostile hosts, and the misbehaving handlers, as one list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tests.harness.nemesis.hostile import bad_handlers
from uttu.settings import Settings
from uttu.testing.site.hostile import KINDS, Kind

GROUPS: Final = (
    "content",
    "charsets",
    "documents",
    "codings",
    "http1",
    "tls",
    "http2",
    "robots",
    "sitemaps",
    "cookies",
    "redirects",
    "rates",
    "traps",
    "handlers",
)
# A kind of these may keep a process busy, so each has a crawl to itself.
_ALONE: Final = frozenset({"content", "documents", "sitemaps", "handlers"})
_TOGETHER: Final = 16

GAP_SECONDS: Final = 1.0
"""The longest that a good host may have to wait for its next request."""
MEGABYTES: Final = 400
"""The most that a process may ever have in memory."""
WATCHDOG_SECONDS: Final = 30.0
"""The same, where only the watchdog can help: ``max_block``, and time for another process to begin."""

# Short, so that what never ends is given up soon. Those that this version does not know are left out.
SETTINGS: Final[dict[str, Any]] = {
    "delay": 0.02,
    "robots": False,
    "private": True,
    "retries": 0,
    "timeout": 6,
    "connect_timeout": 3,
    "read_timeout": 3,
    "lease_seconds": 45,
    "handler_timeout": 6,
    "max_block": 3,
    "max_crawl_delay": 10,
    "max_retry_after": 10,
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to try. ``kind`` is the host; without one, ``handler`` gets an ordinary page."""

    name: str
    about: str
    handler: str
    kind: Kind | None = None
    ends: str = "done|dead"
    endless: bool = False
    blocks: bool = False
    deadly: bool = False
    may_fail: bool = False
    busy: bool = False
    megabytes: int = MEGABYTES
    settings: Mapping[str, Any] = {}

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]

    @property
    def alone(self) -> bool:
        """Whether it is measured in a crawl to itself."""
        return self.group in _ALONE or self.endless


def all_cases() -> tuple[Case, ...]:
    hosts = (
        Case(
            name=kind.name,
            about=kind.about,
            handler=kind.handler,
            kind=kind,
            ends=kind.ends,
            endless=kind.endless,
            settings=kind.settings,
        )
        for kind in KINDS
    )
    handlers = (
        Case(
            name=deed.name,
            about=deed.about,
            handler=deed.handler.__name__,
            ends=deed.ends,
            endless=deed.endless,
            blocks=deed.blocks,
            deadly=deed.deadly,
            may_fail=deed.may_fail,
            busy=deed.busy,
            megabytes=deed.megabytes,
        )
        for deed in bad_handlers.KINDS
    )
    return (*hosts, *handlers)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Cases that are tried in one crawl, and the bars for it."""

    cases: tuple[Case, ...]
    workers: int = 1
    gap_seconds: float = GAP_SECONDS
    patience: float = 60.0
    settings: Mapping[str, Any] = {}

    @property
    def endless(self) -> bool:
        return any(case.endless for case in self.cases)

    @property
    def may_fail(self) -> bool:
        return any(case.may_fail for case in self.cases)

    @property
    def split(self) -> tuple[Trial, ...]:
        """A trial for each of the cases."""
        return tuple(msgspec.structs.replace(self, cases=(case,)) for case in self.cases)


def trials(cases: Sequence[Case], *, together: int = _TOGETHER, patience: float = 60.0) -> Iterator[Trial]:
    """The crawls that try all cases: alone where one may disturb the others, else several with the same settings.

    A handler that blocks the loop stops its process until the watchdog acts, and one that ends its process has it
    started again, so these can't keep the usual bar. They are tried with one worker and with two.
    """
    groups: dict[bytes, list[Case]] = {}
    for case in cases:
        if case.blocks or case.deadly:
            for workers in (1, 2):
                yield Trial(cases=(case,), workers=workers, gap_seconds=WATCHDOG_SECONDS, patience=patience)
        elif case.alone:
            gap = WATCHDOG_SECONDS if case.busy or case.may_fail else GAP_SECONDS
            yield Trial(cases=(case,), gap_seconds=gap, patience=patience)
        else:
            groups.setdefault(case.group.encode() + msgspec.json.encode(case.settings), []).append(case)
    for group in groups.values():
        for at in range(0, len(group), together):
            yield Trial(cases=tuple(group[at : at + together]), patience=patience)


def settings_of(trial: Trial) -> dict[str, Any]:
    """The settings of its crawl."""
    merged = SETTINGS | dict(trial.settings)
    for case in trial.cases:
        merged |= case.settings
    return {name: value for name, value in merged.items() if name in Settings.__struct_fields__}
