"""HTTP/2: what hosts may do beyond ordinary answers, frame by frame. Ordinary answers are in test_ways.py."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import psutil
import pytest

from tests.fetch.certificates import Authority
from tests.fetch.conftest import MakeFetcher
from uttu.errors import BadResponse, FetchError, NetworkError, TooSlow
from uttu.fetch import http2
from uttu.fetch.exchange import LargeBodies
from uttu.fetch.http2_frames import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    encode_field,
    encode_frame,
)
from uttu.model import Request

END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 0x20
OK = encode_field(b":status", b"200") + encode_field(b"x-a", b"1")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Script = Callable[["Host"], Awaitable[None]]


@pytest.fixture(params=["tls"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Host:
    """One connection, spoken to frame by frame."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> tuple[int, int, int, bytes]:
        head = await self.reader.readexactly(9)
        payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
        return head[3], head[4], int.from_bytes(head[5:], "big"), payload

    async def request(self) -> int:
        """The number of the next request's stream."""
        while True:
            kind, _, number, _ = await self.read()
            if kind == HEADERS:
                return number

    async def until(self, wanted: int) -> bytes:
        while True:
            kind, _, _, payload = await self.read()
            if kind == wanted:
                return payload

    async def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))
        await self.writer.drain()
        await asyncio.sleep(0)  # where there is nothing to wait for, a flood would leave no turn to its receiver

    async def answer(self, number: int, body: bytes = b"ok") -> None:
        await self.send(encode_frame(HEADERS, END_HEADERS, number, OK), encode_frame(DATA, END_STREAM, number, body))


class Served:
    def __init__(self, port: int, opened: list[Host]) -> None:
        self.url = f"https://127.0.0.1:{port}/"
        self.opened = opened


Speak = Callable[[Script], Awaitable[Served]]


@pytest.fixture
async def speak(authority: Authority) -> AsyncIterator[Speak]:
    """Starts hosts that follow a script on each connection, after the greetings."""
    tasks: set[asyncio.Task[None]] = set()
    async with AsyncExitStack() as stack:

        async def start(script: Script) -> Served:
            opened: list[Host] = []

            async def connected(reader: Reader, writer: Writer) -> None:
                task = asyncio.current_task()
                assert task is not None
                tasks.add(task)
                host = Host(reader, writer)
                opened.append(host)
                with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    try:
                        assert await reader.readexactly(len(PREFACE)) == PREFACE
                        await host.send(encode_frame(SETTINGS, 0, 0))
                        await script(host)
                        await reader.read()
                    finally:
                        writer.transport.abort()

            server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=authority.server(alpn=("h2",)))
            stack.callback(server.close)
            return Served(server.sockets[0].getsockname()[1], opened)

        yield start
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve_all(host: Host) -> None:
    while True:
        await host.answer(await host.request())


async def test_one_connection_for_all(speak: Speak, make: MakeFetcher) -> None:
    served = await speak(serve_all)
    fetcher = make()
    answers = await asyncio.gather(*(fetcher.fetch(Request.to(f"{served.url}{n}")) for n in range(50)))
    answers += [await fetcher.fetch(Request.to(served.url))]
    assert {(answer.status, answer.body, answer.version) for answer in answers} == {(200, b"ok", "HTTP/2.0")}
    assert len(served.opened) == 1


async def test_ignored_frames_around_a_response(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        number = await host.request()
        block = OK + encode_field(b"x-b", b"2" * 100)
        await host.send(
            encode_frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x10"),
            encode_frame(PRIORITY, 0, number, bytes(5)),
            encode_frame(0xFA, 0, 0, b"unknown"),
            encode_frame(
                HEADERS, END_HEADERS, number, encode_field(b":status", b"103") + encode_field(b"link", b"</x>")
            ),
            encode_frame(HEADERS, PADDED | PRIORITIZED, number, b"\x03" + bytes(5) + block[:10] + bytes(3)),
            encode_frame(CONTINUATION, 0, number, block[10:20]),
            encode_frame(CONTINUATION, END_HEADERS, number, block[20:]),
            encode_frame(PING, 0, 0, b"12345678"),
            encode_frame(DATA, PADDED, number, b"\x05warp " + bytes(5)),
            encode_frame(DATA, 0, number),
            encode_frame(DATA, 0, number, b"and uttu"),
            encode_frame(HEADERS, END_HEADERS | END_STREAM, number, encode_field(b"x-trailer", b"1")),
        )
        while True:
            kind, flags, _, payload = await host.read()
            if kind == PING:
                assert (flags, payload) == (ACK, b"12345678")
                break

    served = await speak(script)
    answer = await make().fetch(Request.to(served.url))
    assert (answer.status, answer.body, answer.headers["x-b"]) == (200, b"warp and uttu", "2" * 100)
    assert "x-trailer" not in answer.headers


FINE = encode_frame(HEADERS, END_HEADERS, 1, OK)
WRONG = {
    "an answer without a status": encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, encode_field(b"x-a", b"1")),
    "a status that is none": encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, encode_field(b":status", b"2xx")),
    "another protocol": encode_frame(HEADERS, END_HEADERS, 1, encode_field(b":status", b"101")),
    "nothing but a note": encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, encode_field(b":status", b"103")),
    "a body without a head": encode_frame(DATA, END_STREAM, 1, b"x"),
    "two heads": FINE + FINE,
    "a block that is none": encode_frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
    "a block that is interrupted": encode_frame(HEADERS, 0, 1, OK) + encode_frame(PING, 0, 0, bytes(8)),
    "a block that goes on after its end": FINE + encode_frame(CONTINUATION, END_HEADERS, 1, OK),
    "a stream that nobody opened": encode_frame(HEADERS, END_HEADERS, 7, OK),
    "a stream of its own": encode_frame(HEADERS, END_HEADERS, 2, OK),
    "a push": encode_frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + OK),
    "a frame that is too large": encode_frame(HEADERS, END_HEADERS, 1, OK) + encode_frame(DATA, 0, 1, bytes(16_385)),
    "padding longer than its frame": FINE + encode_frame(DATA, PADDED, 1, b"\x09x"),
    "a window beyond all bounds": encode_frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "the words of HTTP/1": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "more than announced": encode_frame(HEADERS, END_HEADERS, 1, OK + encode_field(b"content-length", b"1"))
    + encode_frame(DATA, END_STREAM, 1, b"ok"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_invalid_http2_responses(kind: str, speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        await host.request()
        await host.send(WRONG[kind])

    served = await speak(script)
    with pytest.raises(BadResponse, match="sent an invalid response: "):
        await make().fetch(Request.to(served.url))


CONTINUED = encode_frame(HEADERS, 0, 1, OK)
FLOODS = {
    "empty continuations": (CONTINUED, encode_frame(CONTINUATION, 0, 1)),
    "continuations": (CONTINUED, encode_frame(CONTINUATION, 0, 1, encode_field(b"x", b"v" * 16_000))),
    "empty data": (FINE, encode_frame(DATA, 0, 1)),
    "padding": (FINE, encode_frame(DATA, PADDED, 1, b"\xff" + bytes(255))),
    "pings": (b"", encode_frame(PING, 0, 0, bytes(8))),
    "settings": (b"", encode_frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x10" * 100)),
    "notes": (b"", encode_frame(HEADERS, END_HEADERS, 1, encode_field(b":status", b"103"))),
    "resets": (b"", encode_frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") + encode_frame(PRIORITY, 0, 1, bytes(5))),
    "windows": (b"", encode_frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1")),
    "unknown frames": (b"", encode_frame(0xEE, 0, 0, bytes(1000))),
    "trailers": (FINE, encode_frame(HEADERS, END_HEADERS, 1, OK)),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_frames_without_data_end_the_connection(kind: str, speak: Speak, make: MakeFetcher) -> None:
    """Frames without end, and nothing in them: there is an end to it, soon, and memory stays as it is."""
    first, again = FLOODS[kind]

    async def script(host: Host) -> None:
        await host.request()
        await host.send(first)
        while True:
            await host.send(again * (100_000 // len(again)))

    served = await speak(script)
    before, started = psutil.Process().memory_info().rss, time.monotonic()
    with pytest.raises(BadResponse):
        await make(timeout=20).fetch(Request.to(served.url))
    assert time.monotonic() - started < 10
    assert psutil.Process().memory_info().rss - before < 60 * 1024 * 1024


async def test_a_host_that_resets_every_stream(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        while True:
            await host.send(encode_frame(RST_STREAM, 0, await host.request(), b"\0\0\0\2"))

    served = await speak(script)
    fetcher = make()
    for _ in range(3):
        with pytest.raises(NetworkError, match=r"stream reset \(INTERNAL_ERROR\)"):
            await fetcher.fetch(Request.to(served.url))
    assert len(served.opened) == 1


async def test_unprocessed_request_is_repeated(speak: Speak, make: MakeFetcher) -> None:
    """As the standard allows: after REFUSED_STREAM, and beyond the last stream of a GOAWAY."""
    seen = 0

    async def script(host: Host) -> None:
        nonlocal seen
        while True:
            number = await host.request()
            seen += 1
            if seen == 1:
                await host.send(encode_frame(RST_STREAM, 0, number, b"\0\0\0\7"))
            elif seen == 2:
                await host.send(encode_frame(GOAWAY, 0, 0, bytes(8)))
            else:
                await host.answer(number)

    served = await speak(script)
    assert (await make().fetch(Request.to(served.url))).body == b"ok"
    assert (seen, len(served.opened)) == (3, 2)


async def test_host_that_refuses_every_stream(speak: Speak, make: MakeFetcher) -> None:
    seen = 0

    async def script(host: Host) -> None:
        nonlocal seen
        while True:
            number = await host.request()
            seen += 1
            await host.send(encode_frame(RST_STREAM, 0, number, b"\0\0\0\7"))

    served = await speak(script)
    with pytest.raises(NetworkError, match="did not process the request in 3 tries"):
        await make().fetch(Request.to(served.url))
    assert seen == 3


async def test_running_streams_finish_after_goaway(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        number = await host.request()
        await host.send(encode_frame(GOAWAY, 0, 0, number.to_bytes(4, "big") + bytes(4)))
        await host.answer(number)

    served = await speak(script)
    fetcher = make()
    for _ in range(2):
        assert (await fetcher.fetch(Request.to(served.url))).body == b"ok"
    assert len(served.opened) == 2


async def test_no_more_streams_than_the_host_allows(speak: Speak, make: MakeFetcher) -> None:
    most = 0

    async def script(host: Host) -> None:
        nonlocal most
        await host.send(encode_frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x02"))
        number = await host.request()
        await host.answer(number)
        while True:
            numbers = [await host.request(), await host.request()]
            most = max(most, len(numbers))
            for number in numbers:
                await host.answer(number)

    served = await speak(script)
    fetcher = make()
    await fetcher.fetch(Request.to(served.url))
    first = [asyncio.create_task(fetcher.fetch(Request.to(f"{served.url}{n}"))) for n in range(3)]
    done = await asyncio.wait_for(asyncio.gather(*first), 10)
    assert [answer.body for answer in done] == [b"ok"] * 3
    assert len(served.opened) == 2


async def test_a_body_waits_for_the_window(speak: Speak, make: MakeFetcher) -> None:
    body = bytes(range(256)) * 600
    got = bytearray()

    async def script(host: Host) -> None:
        number = await host.request()
        while len(got) < len(body):
            kind, _, _, payload = await host.read()
            if kind == DATA:
                got.extend(payload)
                if len(got) in (65_535, 100_000):
                    more = encode_frame(WINDOW_UPDATE, 0, 0, (34_465).to_bytes(4, "big"))
                    await host.send(
                        more, encode_frame(SETTINGS, 0, 0, b"\0\x04" + (len(got) + 34_465).to_bytes(4, "big"))
                    )
                    if len(got) == 100_000:
                        await host.send(encode_frame(WINDOW_UPDATE, 0, 0, (100_000).to_bytes(4, "big")))
                        await host.send(encode_frame(WINDOW_UPDATE, 0, number, (100_000).to_bytes(4, "big")))
        await host.answer(number)

    served = await speak(script)
    answer = await make().fetch(Request.to(served.url, method="POST", body=body))
    assert (answer.body, bytes(got)) == (b"ok", body)


async def test_response_before_request_body_is_sent(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        await host.answer(await host.request(), b"no need")
        assert await host.until(RST_STREAM)

    served = await speak(script)
    answer = await make().fetch(Request.to(served.url, method="POST", body=bytes(500_000)))
    assert answer.body == b"no need"


async def test_one_slow_stream_does_not_end_the_others(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        await host.request()
        while True:
            await host.answer(await host.request())

    served = await speak(script)
    fetcher = make(read_timeout=0.5)
    slow = asyncio.create_task(fetcher.fetch(Request.to(served.url)))
    await asyncio.sleep(0.1)
    assert (await fetcher.fetch(Request.to(served.url))).body == b"ok"
    with pytest.raises(TooSlow, match=r"read_timeout=0\.5"):
        await slow
    assert (await fetcher.fetch(Request.to(served.url))).body == b"ok"
    assert len(served.opened) == 1


async def test_silent_connection_is_not_reused(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        await host.answer(await host.request())
        if len(served.opened) > 1:
            await serve_all(host)

    served = await speak(script)
    fetcher = make(read_timeout=0.3)
    assert (await fetcher.fetch(Request.to(served.url))).body == b"ok"
    with pytest.raises(TooSlow):
        await fetcher.fetch(Request.to(served.url))
    assert (await fetcher.fetch(Request.to(served.url))).body == b"ok"
    assert len(served.opened) == 2


async def test_empty_data_does_not_keep_a_stream_alive(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        await host.request()
        await host.send(FINE)
        while True:
            await host.send(encode_frame(DATA, 0, 1), encode_frame(PING, 0, 0, bytes(8)))
            await asyncio.sleep(0.05)

    served = await speak(script)
    with pytest.raises(TooSlow, match=r"read_timeout=0\.5"):
        await make(read_timeout=0.5).fetch(Request.to(served.url))


async def test_idle_connections_are_closed(speak: Speak, make: MakeFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "IDLE_SECONDS", 0.2)
    said_goodbye = asyncio.Event()

    async def script(host: Host) -> None:
        await host.answer(await host.request())
        assert (await host.until(GOAWAY))[4:8] == bytes(4)
        said_goodbye.set()

    served = await speak(script)
    await make().fetch(Request.to(served.url))
    await asyncio.wait_for(said_goodbye.wait(), 5)


async def test_host_that_closes_the_connection(speak: Speak, make: MakeFetcher) -> None:
    async def script(host: Host) -> None:
        number = await host.request()
        if len(served.opened) > 1:
            await host.send(encode_frame(HEADERS, END_HEADERS, number, OK))
        host.writer.close()

    served = await speak(script)
    fetcher = make()
    with pytest.raises(NetworkError, match="broke before the response"):
        await fetcher.fetch(Request.to(served.url))
    with pytest.raises(NetworkError, match="broke before the body was complete"):
        await fetcher.fetch(Request.to(served.url))
    for _ in range(500):
        if not fetcher._pool._open:
            break
        await asyncio.sleep(0.01)
    assert not fetcher._pool._open
    assert not fetcher._pool._shared


async def test_close_aborts_running_fetches(speak: Speak, make: MakeFetcher) -> None:
    asked = asyncio.Event()

    async def script(host: Host) -> None:
        await host.request()
        asked.set()

    served = await speak(script)
    fetcher = make()
    task = asyncio.create_task(fetcher.fetch(Request.to(served.url)))
    await asked.wait()
    await fetcher.close()
    with pytest.raises(FetchError, match="closed during the fetch"):
        await task


async def test_host_that_requires_http1(authority: Authority, make: MakeFetcher) -> None:
    """HTTP_1_1_REQUIRED: it is asked again by HTTP/1.1, and from then on."""
    versions: list[str] = []

    async def connected(reader: Reader, writer: Writer) -> None:
        secured = writer.get_extra_info("ssl_object")
        version = secured.selected_alpn_protocol()
        versions.append(version)
        with suppress(OSError, asyncio.IncompleteReadError):
            if version == "h2":
                await reader.readexactly(len(PREFACE))
                host = Host(reader, writer)
                await host.send(encode_frame(SETTINGS, 0, 0))
                await host.send(encode_frame(RST_STREAM, 0, await host.request(), b"\0\0\0\x0d"))
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.transport.abort()

    tls = authority.server(alpn=("h2", "http/1.1"))
    async with await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        fetcher = make()
        for _ in range(2):
            answer = await fetcher.fetch(Request.to(url))
            assert (answer.body, answer.version) == (b"ok", "HTTP/1.1")
        assert versions == ["h2", "http/1.1"]
        await fetcher.close()


async def test_stream_window_stays_closed_until_there_is_memory(speak: Speak, make: MakeFetcher) -> None:
    size = 3 * 1024 * 1024
    sent: dict[int, int] = {}

    async def script(host: Host) -> None:
        windows: dict[int, int] = {}
        while True:
            while number := next((each for each, left in windows.items() if left > 0 and sent[each] < size), 0):
                piece = min(16_384, windows[number], size - sent[number])
                windows[number] -= piece
                sent[number] += piece
                end = END_STREAM if sent[number] == size else 0
                await host.send(encode_frame(DATA, end, number, b"x" * piece))
            kind, _, number, payload = await host.read()
            if kind == HEADERS:
                sent[number], windows[number] = 0, 1024 * 1024
                await host.send(encode_frame(HEADERS, END_HEADERS, number, OK))
            elif kind == WINDOW_UPDATE and number:
                windows[number] += int.from_bytes(payload, "big")

    served = await speak(script)
    fetcher = make(max_body=4 * 1024 * 1024)
    fetcher._pool.large_bodies = LargeBodies(4 * 1024 * 1024, patience=60)
    first = await fetcher.fetch(Request.to(served.url))
    second = asyncio.ensure_future(fetcher.fetch(Request.to(served.url)))
    for _ in range(20):
        await asyncio.sleep(0.02)
    assert sent[1] == size
    assert size // 3 < sent[3] < size
    assert len(first.body) == size
    del first
    gc.collect()
    assert len((await second).body) == size
