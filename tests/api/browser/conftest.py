"""Chromium, and a shop that crawls fetch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.harness.servers.chromium import FLAGS, chromium_program
from uttu.testing.site import Site, SiteProcess


@pytest.fixture
def shop() -> Iterator[SiteProcess]:
    """Two hosts with 400 products, for a crawl of a minute. Flaky pages fail once, so each test has its own shop."""
    with SiteProcess(Site(hosts=2, products=400, latency=0.05)) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser with an empty profile. It ends with the module: while it runs, no other event loop can."""
    program = chromium_program()
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield running
        running.close()
