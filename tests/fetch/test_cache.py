from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from uttu.errors import NetworkError, StoreError
from uttu.fetch.cache import CachingFetcher
from uttu.model import Headers, Request, Response

HEADERS = Headers([("content-type", "text/html"), ("set-cookie", "a=1"), ("set-cookie", "b=2")])


class Fake:
    """Answers with a number that grows with each fetch."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.fetched: list[str] = []
        self.closed = 0

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        self.fetched.append(request.url)
        if self.status == 0:
            raise NetworkError("down")
        body = f"<p>{len(self.fetched)} é</p>".encode()
        cut = first is not None and len(body) > first
        return Response(
            request=request,
            url=request.url,
            status=self.status,
            headers=HEADERS,
            body=body[:first],
            version="HTTP/2.0",
            cut=cut,
        )

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


async def test_second_fetch_is_replayed(file: Path) -> None:
    inner = Fake()
    fetcher = CachingFetcher(inner, file)
    request = Request.to("http://a.example/")
    first = await fetcher.fetch(request)
    before = time.monotonic()
    second = await fetcher.fetch(Request.to("http://a.example/", meta={"mine": 1}))
    assert inner.fetched == [request.url]
    assert (first.cached, second.cached) == (False, True)
    assert (second.status, second.body, second.url, second.version) == (200, first.body, first.url, "HTTP/2.0")
    assert second.headers.pairs() == HEADERS.pairs()
    assert second.request.meta == {"mine": 1}
    assert before <= second.received <= time.monotonic()
    assert second.elapsed >= 0
    await fetcher.close()


async def test_cache_outlives_the_process(file: Path) -> None:
    for _ in range(2):
        inner = Fake()
        fetcher = CachingFetcher(inner, file)
        assert (await fetcher.fetch(Request.to("http://a.example/"))).body == "<p>1 é</p>".encode()
        await fetcher.close()
    assert inner.fetched == []


async def test_other_requests_are_other_pages(file: Path) -> None:
    inner = Fake()
    fetcher = CachingFetcher(inner, file)
    url = "http://a.example/"
    requests = [
        Request.to(url),
        Request.to(url + "?b"),
        Request.to(url, method="POST"),
        Request.to(url, method="POST", body=b"1"),
        Request.to(url, salt="s"),
    ]
    bodies = {(await fetcher.fetch(request)).body for request in requests}
    assert len(bodies) == 5
    await fetcher.close()


async def test_a_collision_of_fingerprints_replays_nothing(file: Path) -> None:
    fetcher = CachingFetcher(Fake(), file)
    await fetcher.fetch(Request.to("http://a.example/"))
    with sqlite3.connect(file) as db:
        db.execute("UPDATE responses SET url = 'http://b.example/'")
    db.close()
    assert not (await fetcher.fetch(Request.to("http://a.example/"))).cached
    await fetcher.close()


@pytest.mark.parametrize(
    ("status", "kept"), [(200, True), (302, True), (404, True), (429, False), (500, False), (503, False)]
)
async def test_retryable_responses_are_not_cached(status: int, kept: bool, file: Path) -> None:
    inner = Fake(status)
    fetcher = CachingFetcher(inner, file)
    for _ in range(2):
        await fetcher.fetch(Request.to("http://a.example/"))
    assert len(inner.fetched) == (1 if kept else 2)
    await fetcher.close()


async def test_errors_pass_through(file: Path) -> None:
    fetcher = CachingFetcher(Fake(0), file)
    with pytest.raises(NetworkError, match="down"):
        await fetcher.fetch(Request.to("http://a.example/"))
    await fetcher.close()


async def test_close_closes_the_inner_one_once(file: Path) -> None:
    inner = Fake()
    fetcher = CachingFetcher(inner, file)
    await fetcher.fetch(Request.to("http://a.example/"))
    await fetcher.close()
    await fetcher.close()
    assert inner.closed == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("uttu-cache")]


@pytest.mark.parametrize("content", [b"this is not a database, but long enough to be taken for one" * 20])
async def test_cache_file_is_not_a_database(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    fetcher = CachingFetcher(Fake(), file)
    with pytest.raises(StoreError, match=r"cache\.sqlite is damaged.*Delete it"):
        await fetcher.fetch(Request.to("http://a.example/"))
    await fetcher.close()


@pytest.mark.parametrize("damage", ["body = x'00'", "headers = x'7b'"])
async def test_a_damaged_row(damage: str, file: Path) -> None:
    fetcher = CachingFetcher(Fake(), file)
    await fetcher.fetch(Request.to("http://a.example/"))
    with sqlite3.connect(file) as db:
        db.execute(f"UPDATE responses SET {damage}")
    db.close()
    with pytest.raises(StoreError, match="Delete it"):
        await fetcher.fetch(Request.to("http://a.example/"))
    await fetcher.close()


async def test_missing_folder_is_created(tmp_path: Path) -> None:
    fetcher = CachingFetcher(Fake(), tmp_path / "none" / "cache.sqlite")
    await fetcher.fetch(Request.to("http://a.example/"))
    await fetcher.close()
    assert (tmp_path / "none" / "cache.sqlite").exists()


ANOTHER_PROCESS = """
import asyncio, sys
from pathlib import Path
from uttu.fetch.cache import CachingFetcher
from uttu.model import Headers, Request, Response

class Fake:
    async def fetch(self, request, *, first=None):
        return Response(request=request, url=request.url, status=200, headers=Headers(), body=b"x" * 10_000)
    async def close(self):
        pass

async def main(file, start):
    fetcher = CachingFetcher(Fake(), Path(file))
    for n in range(start, start + 30):
        await fetcher.fetch(Request.to(f"http://a.example/{n}"))
    await fetcher.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_several_processes_share_the_file(file: Path) -> None:
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(file)]
    processes = [subprocess.Popen([*command, str(20 * n)]) for n in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT count(*) FROM responses").fetchone() == (90,)
    db.close()


async def test_cut_response_is_not_cached(file: Path) -> None:
    inner = Fake()
    fetcher = CachingFetcher(inner, file)
    request = Request.to("http://a.example/robots.txt")
    assert (await fetcher.fetch(request, first=3)).body == b"<p>"
    whole = await fetcher.fetch(request)
    assert (whole.body, whole.cached) == ("<p>2 é</p>".encode(), False)
    again = await fetcher.fetch(request, first=3)
    assert (again.body, again.cached, again.cut) == (b"<p>", True, True)
    assert not (await fetcher.fetch(request, first=100)).cut
    await fetcher.close()
