"""What the demo claims at its end, counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from weft.cli.demo_kill import Killed
from weft.testing.site import SiteProcess, fetches, gaps
from weft.testing.site.model import Layout


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers behind the claims."""

    rows: int
    pages: int
    missing: int
    double: int
    killed_at: int
    in_flight: int
    refetched: int
    needlessly: int
    forbidden: int
    shortest_gap: float
    delay: float
    sample: list[dict[str, str]]

    @property
    def good(self) -> bool:
        return all(good for _, good in self.claims())

    def claims(self) -> list[tuple[str, bool]]:
        """Sentences, and whether they are true."""
        return [
            (
                f"exactly one row for every page: {self.rows:,} rows, {self.pages:,} pages",
                not self.missing and not self.double and self.rows == self.pages,
            ),
            (
                f"nothing fetched twice but what was in flight at the kill: {self.refetched:,} of {self.in_flight:,}",
                not self.needlessly,
            ),
            ("nothing fetched that robots.txt forbids", not self.forbidden),
            (
                f"no host asked more often than every {self.delay * 1000:.0f} ms, over all processes: "
                f"at least {self.shortest_gap * 1000:.1f} ms apart",
                self.shortest_gap >= self.delay,
            ),
        ]


def check(output: Path, site: SiteProcess, killed: Killed, delay: float) -> Checked:
    """Compare the output and the site's log with what the site is made of."""
    rows = [msgspec.json.decode(line, type=dict[str, str]) for line in output.read_bytes().splitlines()]
    urls = Counter(row["url"] for row in rows)
    layout = Layout(site.site, tuple(url.rstrip("/") for url in site.urls))
    expected = {layout.page_url(page) for page in range(site.site.pages)}
    expected |= {f"{layout.origins[0]}/shop/product/{sku}" for sku in range(1, site.site.products + 1)}
    records = site.records()
    # The page that is broken is tried again on purpose.
    asked = fetches(record for record in records if not record.path.startswith("/odd/"))
    again = {page for page, count in asked.items() if count > 1}
    return Checked(
        rows=len(rows),
        pages=len(expected),
        missing=len(expected - urls.keys()),
        double=sum(count > 1 for count in urls.values()),
        killed_at=killed.done,
        in_flight=killed.leased,
        refetched=len(again),
        needlessly=len(again - killed.in_flight) + sum(count > 2 for count in asked.values()),
        forbidden=sum(path.startswith("/private/") for _, path in asked),
        shortest_gap=min(gap for found in gaps(records).values() for gap in found),
        delay=delay,
        sample=[*rows[:3], *[row for row in rows if "/shop/" in row["url"]][:2]],
    )
