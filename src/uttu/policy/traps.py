"""Detect crawler traps: sites with endless URL spaces that have new addresses on every page.

    /a/b/a/b/a/b/…                 a broken relative link that adds itself once per page
    ?sort=x&sort=x&sort=x          the same in the query
    /calendar/2041/07/             a "next month" link without end
    ?sid=8f14e45fceea167a          the same page under a new URL for each session

A wrong refusal loses pages silently, while a wrong pass costs a few fetches. So every rule only matches patterns that
real sites do not have. Numbers alone are not suspicious: a crawl may well want a million products. In particular:

- Repeated numbers (``/000/000/000/12.jpg``, map tiles) may repeat more often than words.
- ``/2041/10`` may be page 10 of thread 2041. Unless the URL has a word such as "calendar", only ``/2041/07`` counts as
  a date, because page numbers are not padded. Calendars link month by month, so refusing 01 to 09 stops them.
- Old dates may be a newspaper's archive, so each shape of URL has a budget of them (``MAX_OLD_DATES``). Dates more than
  ``YEARS_AHEAD`` years in the future are refused.
- Session ids are counted per page: the first ``MAX_SESSIONS`` ids of a page stay allowed. A site that adds one id to
  all of its links is crawled as if it had none.

Memory is bounded; entries that are dropped are allowed again.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from itertools import islice
from typing import Any, Final

MAX_SEGMENTS: Final = 30
MAX_PARAMETERS: Final = 40
MAX_SAME_NAME: Final = 12
"""The most parameters with one name, as in ``brand=a&brand=b``."""
MAX_SAME_PARAMETER: Final = 2
"""The most parameters with one name and value."""
MAX_REPEATS: Final = 2
"""How often a sequence of several segments may repeat in a row."""
MAX_REPEATS_SINGLE: Final = 3
MAX_REPEATS_NUMBERS: Final = 7
MAX_SAME_SEGMENT: Final = 5
"""How often one segment that is not a number may occur in the path."""
FIRST_YEAR: Final = 1990
YEARS_AHEAD: Final = 2
YEARS: Final = range(1800, 2200)
"""Numbers of four digits that may be years; other numbers are ids."""
MAX_OLD_DATES: Final = 1000
"""The most URLs of one shape with a date before ``FIRST_YEAR``."""
MAX_SHAPES: Final = 200
"""The most shapes with old dates that are remembered."""
MAX_SESSIONS: Final = 4
"""The most session ids per page."""
MAX_PAGES: Final = 50_000
"""The most pages with session ids that are remembered."""

_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_DAY: Final = r"(?:0[1-9]|[12][0-9]|3[01])"
_maybe_date: Final = re.compile(r"[12][0-9]{3}[-/][01]?[0-9](?![0-9])").search
_full_date: Final = re.compile(rf"(?<![0-9])([0-9]{{4}})-{_MONTH}-{_DAY}(?![0-9])")
_padded_date: Final = re.compile(r"/([0-9]{4})[-/]0[1-9](?=[/?.;]|$)")
_loose_date: Final = re.compile(r"(?<![0-9])([0-9]{4})[-/](?:0?[1-9]|1[0-2])(?![0-9])")
_calendar: Final = re.compile(r"calend|kalend|agenda|month|/cal/")

_NAME: Final = r"(?:^|[?&])(?:[a-z]+[_.-])*"
_query_date: Final = re.compile(
    rf"{_NAME}(?:(?:start|end|from|to|event)?date|day|month)=([0-9]{{4}})[-/.]?{_MONTH}(?:[-/.]?{_DAY})?(?![0-9])"
)
_query_year: Final = re.compile(rf"{_NAME}year=([0-9]{{4}})(?![0-9])")
_query_month: Final = re.compile(rf"{_NAME}month=")

# The value must look random, too: sid=1234 may be a story, session=2019 a parliament's session.
_session: Final = re.compile(
    r"((?:[?&;](?:phpsessid|jsessionid|aspsessionid[a-z]*|sess(?:ion)?[_-]?(?:id|key|token)?|s_?id|oscsid|xtcsid|zenid)="
    r"|/\(s\())((?=[a-z_.,!~-]*[0-9])[0-9a-z_.,!~-]{16,128})",
    re.IGNORECASE,
)
_MIN_SESSION: Final = len("sid=") + 16
_token: Final = re.compile(r"[0-9a-f]{16,}|(?=[a-z_]*[0-9])[0-9a-z_]{20,}", re.IGNORECASE)
_digits: Final = re.compile(r"[0-9]+")


def shape(url: str) -> str:
    """The template of a URL: numbers become ``0``, random tokens ``*``, and query values are removed."""
    head, _, query = url.partition("?")
    start = head.find("/", 8)
    if start < 0:
        start = len(head)
    path = _digits.sub("0", _token.sub("*", head[start:]))
    return f"{head[:start]}{path}?{'&'.join(sorted({name.partition('=')[0] for name in query.split('&')}))}"


class Traps:
    """Checks canonical URLs. A URL that was allowed stays allowed while it is remembered."""

    __slots__ = ("_last_year", "_old_dates", "_sessions")

    def __init__(self, today: date) -> None:
        self._last_year = today.year + YEARS_AHEAD
        self._sessions: dict[int, tuple[int, ...]] = {}
        self._old_dates: dict[str, set[int]] = {}

    def refuse(self, url: str) -> str | None:
        """The reason why a URL looks like a trap; None if it does not."""
        # Each check starts with a cheap test that ordinary URLs do not pass.
        head, _, query = url.partition("?")
        reason = None
        if head.count("/") > 2 + MAX_REPEATS_SINGLE:
            reason = _path(head.split("/")[3:])
        dated = _maybe_date(url, 8) is not None
        sessions = ";" in head or "/(" in head
        if query and not reason:
            # A broken link that appends "?a=1" to the page's URL makes "?a=1?a=1?a=1".
            parameters = query.replace("?", "&").split("&")
            if len(parameters) > MAX_SAME_PARAMETER:
                reason = _query(parameters)
            query = query.lower()
            dated = dated or "year=" in query or "date=" in query or "day=" in query or "month=" in query
            sessions = sessions or (len(query) >= _MIN_SESSION and max(map(len, parameters)) >= _MIN_SESSION)
        if dated and not reason:
            reason = self._date(url, head, query)
        if sessions and not reason and (match := _session.search(url)):
            reason = self._session(url, match[2])
        return reason

    def _date(self, url: str, head: str, query: str) -> str | None:
        start = head.find("/", 8) if "/" in head[8:] else len(head)
        dates = {*_full_date.findall(url, start), *_padded_date.findall(url, start)}
        if _calendar.search(head.lower()) or _calendar.search(query):
            dates.update(_loose_date.findall(url, start))
        years = {year for year in map(int, dates) if year in YEARS}
        if query:
            years.update(map(int, _query_date.findall(query)))
            if _query_month.search(query):
                years.update(map(int, _query_year.findall(query)))
        if not years:
            return None
        if max(years) > self._last_year:
            return f"a calendar without end: a date in the year {max(years)}"
        if min(years) < FIRST_YEAR and not self._within_budget(url):
            return f"a calendar without end: more than {MAX_OLD_DATES} dates before {FIRST_YEAR}"
        return None

    def _within_budget(self, url: str) -> bool:
        template, key = shape(url), hash(url)
        # Removed and inserted again, so that _make_room() drops shapes that have not been used for long.
        known = self._old_dates.pop(template, None) or set()
        _make_room(self._old_dates, MAX_SHAPES)
        self._old_dates[template] = known
        if len(known) < MAX_OLD_DATES:
            known.add(key)
        return key in known

    def _session(self, url: str, session: str) -> str | None:
        page, key = hash(_session.sub(r"\1", url)), hash(session)
        known = self._sessions.get(page, ())
        if key in known:
            return None
        if len(known) >= MAX_SESSIONS:
            return f"a page under more than {MAX_SESSIONS} session ids"
        if not known:
            _make_room(self._sessions, MAX_PAGES)
        self._sessions[page] = (*known, key)
        return None


def _make_room(memory: dict[Any, Any], limit: int) -> None:
    """Drop the older half of a full dict. Dropping single entries would be slow: iteration skips the deleted slots."""
    if len(memory) >= limit:
        for key in list(islice(memory, limit // 2)):
            del memory[key]


def _path(segments: list[str]) -> str | None:
    if len(segments) > MAX_SEGMENTS:
        return f"a path of more than {MAX_SEGMENTS} segments"
    # Every rule below needs at least three segments that repeat an earlier one.
    if len(segments) - len(set(segments)) < MAX_REPEATS_SINGLE:
        return None
    if _in_a_row(segments):
        return "a path that repeats itself"
    common = Counter(segment for segment in segments if not segment.isdigit()).most_common(1)
    if common and common[0][1] > MAX_SAME_SEGMENT:
        return f"a path with {common[0][0]!r} {common[0][1]} times"
    return None


def _in_a_row(segments: list[str]) -> bool:
    for period in range(1, len(segments) // 3 + 1):
        same = 0
        for i in range(period, len(segments)):
            same = same + 1 if segments[i] == segments[i - period] else 0
            if same and same % period == 0:
                if all(segment.isdigit() for segment in segments[i - period + 1 : i + 1]):
                    limit = MAX_REPEATS_NUMBERS
                else:
                    limit = MAX_REPEATS_SINGLE if period == 1 else MAX_REPEATS
                if same // period + 1 > limit:
                    return True
    return False


def _query(parameters: list[str]) -> str | None:
    if len(parameters) > MAX_PARAMETERS:
        return f"a query of more than {MAX_PARAMETERS} parameters"
    if len(parameters) - len(set(parameters)) >= MAX_SAME_PARAMETER:
        common = Counter(filter(None, parameters)).most_common(1)
        if common and common[0][1] > MAX_SAME_PARAMETER:
            return f"a query with {common[0][0]!r} {common[0][1]} times"
    if len(parameters) > MAX_SAME_NAME:
        name, times = Counter(parameter.partition("=")[0] for parameter in parameters).most_common(1)[0]
        if times > MAX_SAME_NAME:
            return f"a query with {name!r} {times} times"
    return None
