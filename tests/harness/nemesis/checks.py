"""What must be so after a run, whatever befell it. Pure functions over what was seen; each returns what is wrong.

The site's log says what was fetched, and when. The server's journal says which leases there were, the store's books
what it counts and has, the output file what came out of it all. What is claimed:

*Rows.* Every page that can be reached has exactly one row in the output, and no row is of anything else.

*Books.* At every rest, and after every event, each count of the store is what there is of the thing it counts, and
pending + leased + delayed + done + dead = seen. At the end everything is done.

*Fetches.* A page is fetched once, and once more at most for each lease of it that was lost and each try that the
store counted as failed. Leases that were given back do not count: a worker gives back only what it has not begun
(SIGTERM once; nobody is stopped hard here). The number of losses is in the page's last lease, in the journal.

*Hosts.* Two fetches of one host, robots.txt included, never overlap, and never begin closer together than the delay.
Neither kill -9 nor an absent server excuses anything: a lane counts its delay from the loss of a lease, and a worker
that can't extend a lease begins nothing under it once it has run out. One thing is beyond any worker: it looks at its
lease, then asks the host, and can be frozen in between. When it thaws, that one request leaves, under a lease that is
gone. It is let pass if it comes within a second of the thaw, and is for a page whose lease this very worker lost; the
report counts these as *late*. The contract promises the delay by what the frontier hands out, which stays true.

*Refusals.* A worker that lost a lease and lived on has its outcome refused, if it knew of the lease: as many refusals
as lost leases at least. It may not know of a lease whose grant was answered just when the connection was cut, so
leases granted around a cut are left out. No more refusals than lost leases if nothing was cut: a settle whose answer
got lost is asked again, and what it ended itself counts as refused the second time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec

from tests.harness.nemesis import journal
from tests.harness.nemesis.census import Census
from tests.harness.nemesis.journal import Granted
from uttu.testing.site import Record

THAW_SECONDS: Final = 1.0
# A grant whose answer got lost was made at most so long before the cut.
_AROUND_CUT_SECONDS: Final = 0.5
_SHOWN: Final = 5


class Freeze(msgspec.Struct, frozen=True):
    """A process that stood still, by ``time.monotonic()``, and how many leases it held."""

    pid: int
    began: float
    ended: float
    held: int


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen of a run. Pages are called as :func:`journal.page_of` has it."""

    delay: float
    pages: frozenset[str]
    rows: list[str]
    records: list[Record]
    leases: list[Granted]
    books: list[tuple[str, Census]]
    """Each with the moment in words; the last is the end."""
    freezes: list[Freeze] = []
    cuts: list[float] = []
    """When connections to the server broke, by the wall clock."""
    refusals: dict[int, int] = {}
    """Of each process that ended in order: how many of its outcomes were refused."""


def findings(evidence: Evidence) -> list[str]:
    """All that is wrong, in words."""
    return [found for check in (rows, balances, fetches, hosts, refusals) for found in check(evidence)]


def rows(evidence: Evidence) -> list[str]:
    counted = Counter(evidence.rows)
    return [
        *_several("pages have no row", sorted(evidence.pages - counted.keys())),
        *_several("rows are of no page of the site", sorted(counted.keys() - evidence.pages)),
        *_several("pages have more than one row", sorted(page for page, count in counted.items() if count > 1)),
    ]


def balances(evidence: Evidence) -> list[str]:
    found = []
    for when, books in evidence.books:
        pairs = {
            "pending": (books.pending, books.in_queues),
            "leased": (books.leased, books.in_leases),
            "deadlines": (books.leased, books.in_deadlines),
            "delayed": (books.delayed, books.in_delayed),
            "done": (books.done, books.in_outbox),
            "dead": (books.dead, books.in_dead),
            "seen": (books.seen, books.in_seen),
            "all states": (books.pending + books.leased + books.delayed + books.done + books.dead, books.seen),
        }
        found += [
            f"{when}: {name}: {one} by count, but {other}" for name, (one, other) in pairs.items() if one != other
        ]
    if not evidence.books:
        return ["the books were never looked at"]
    when, books = evidence.books[-1]
    if books.done != len(evidence.pages) or books.seen != books.done:
        found.append(f"{when}: {books.done} of {len(evidence.pages)} pages are done, {books.dead} are dead")
    return found


def fetches(evidence: Evidence) -> list[str]:
    counted, last = _fetched(evidence), journal.last(evidence.leases)
    over = [
        f"{page} ({count} times, {last[page].attempt if page in last else 0} counted)"
        for page, count in sorted(counted.items())
        if count > (last[page].attempt if page in last else 0)
    ]
    return _several("pages were fetched more often than their leases allow", over)


def hosts(evidence: Evidence) -> list[str]:
    close = [
        f"{one.host}: {one.path} and {other.path}, {other.time - one.time:.4f} s apart"
        for one, other in _close(evidence)
        if not (_is_late(evidence, one) or _is_late(evidence, other))
    ]
    return _several(f"requests overlap or are closer than the delay of {evidence.delay:g} s", close)


def refusals(evidence: Evidence) -> list[str]:
    lost: defaultdict[int, list[Granted]] = defaultdict(list)
    for lease in journal.lost(evidence.leases):
        lost[_pid(lease)].append(lease)
    found = []
    for pid, refused in evidence.refusals.items():
        known = [lease for lease in lost[pid] if not _is_around_cut(evidence, lease)]
        if refused < len(known):
            found.append(f"process {pid} lost {len(known)} leases, but only {refused} of its outcomes were refused")
        if refused > len(lost[pid]) and not evidence.cuts:
            found.append(f"process {pid} lost {len(lost[pid])} leases, but {refused} of its outcomes were refused")
    found += [
        f"process {freeze.pid} was frozen with {freeze.held} leases; they were not refused"
        for freeze in evidence.freezes
        if evidence.refusals.get(freeze.pid, freeze.held) < freeze.held and not evidence.cuts
    ]
    return found


def late(evidence: Evidence) -> int:
    """How many requests were let pass, see above."""
    return sum(_is_late(evidence, one) or _is_late(evidence, other) for one, other in _close(evidence))


def refetched(evidence: Evidence) -> int:
    """How many fetches of pages were not the first."""
    return sum(count - 1 for count in _fetched(evidence).values())


def _fetched(evidence: Evidence) -> Counter[str]:
    return Counter(page for page in map(_page, evidence.records) if not page.endswith("/robots.txt"))


def _close(evidence: Evidence) -> Iterator[tuple[Record, Record]]:
    by_host: defaultdict[str, list[Record]] = defaultdict(list)
    for record in sorted(evidence.records, key=lambda record: record.time):
        by_host[record.host].append(record)
    for records in by_host.values():
        for one, other in pairwise(records):
            end = one.ended or one.lost or float("inf")
            if other.time < end or other.time - one.time < evidence.delay:
                yield one, other


def _is_late(evidence: Evidence, record: Record) -> bool:
    thawed = {freeze.pid for freeze in evidence.freezes if freeze.ended <= record.time <= freeze.ended + THAW_SECONDS}
    if not thawed:
        return False
    pages = {lease.page for lease in journal.lost(evidence.leases) if _pid(lease) in thawed}
    return _page(record) in pages or (
        record.path == "/robots.txt" and any(page.startswith(f"{record.host}/") for page in pages)
    )


def _is_around_cut(evidence: Evidence, lease: Granted) -> bool:
    return any(abs(lease.at - cut) < _AROUND_CUT_SECONDS for cut in evidence.cuts)


def _page(record: Record) -> str:
    return f"{record.host}{record.path}"


def _pid(lease: Granted) -> int:
    """Workers are named after their machine and process."""
    return int(lease.worker.rsplit("-", 2)[1])


def _several(what: str, which: list[str]) -> list[str]:
    if not which:
        return []
    more = f" and {len(which) - _SHOWN} more" if len(which) > _SHOWN else ""
    return [f"{len(which)} {what}: {', '.join(which[:_SHOWN])}{more}"]
