"""Brokers that misbehave: whatever they answer, and wherever the connection breaks, the error is one of ours."""

from __future__ import annotations

import asyncio
import random
from urllib.parse import urlsplit

import pytest
from tests.clients.bad_servers import HANG_UP, RESET, SILENT, answering, closed, serving
from tests.harness.nemesis.server_kills import BusLoad, Findings, watched

from uttu.bus.kafka import KafkaBus
from uttu.bus.rabbitmq import RabbitBus
from uttu.errors import BusError

ANSWERS = {
    "nothing": SILENT,
    "the end": HANG_UP,
    "a reset": RESET,
    "zeros": bytes(64),
    "noise": bytes(range(256)),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "another version": b"AMQP\x00\x01\x00\x00",
    "Redis": b"-ERR unknown command\r\n",
    "a frame of an unknown kind": b"\x63\x00\x00\x00\x00\x00\x01x\xce",
    "a frame without its end": b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0a\x00",
    "a frame of an unknown method": b"\x01\x00\x00\x00\x00\x00\x04\x00\xff\x00\xff\xce",
    "half a frame": b"\x01\x00\x00\x00\x00\x40\x00half",
    "a huge frame": b"\x01\x00\x00\x7f\xff\xff\xff",
    "a heartbeat": b"\x08\x00\x00\x00\x00\x00\x00\xce",
    "a start that is cut": b"\x01\x00\x00\x00\x00\x00\x06\x00\x0a\x00\x0a\x00\x09\xce",
    "a huge answer of Kafka": b"\x7f\xff\xff\xff\x00\x00\x00\x01",
    "a negative answer of Kafka": b"\xff\xff\xff\xff\x00\x00\x00\x01",
    "an empty answer of Kafka": b"\x00\x00\x00\x04\x00\x00\x00\x01",
}


async def connect(kind: type[RabbitBus | KafkaBus], answer: bytes, form: str) -> BaseException | None:
    """How an attempt ends to use a broker that answers everything with ``answer``."""
    async with serving(answering(answer)) as port, asyncio.timeout(40):
        try:
            bus = await kind.connect(form.format(f"127.0.0.1:{port}"))
        except Exception as error:
            return error
        await bus.close()
        return None


@pytest.mark.parametrize(("kind", "form"), [(RabbitBus, "amqp://guest:guest@{}/"), (KafkaBus, "kafka://{}?timeout=2")])
async def test_unsuitable_broker_is_refused(kind: type[RabbitBus | KafkaBus], form: str) -> None:
    ends = await asyncio.gather(*(connect(kind, answer, form) for answer in ANSWERS.values()))
    found = dict(zip(ANSWERS, ends, strict=True))
    assert {answer: end for answer, end in found.items() if not isinstance(end, BusError)} == {}


class CuttingProxy:
    """Passes bytes on, and cuts connections at random: at any byte, sometimes after noise."""

    def __init__(self, port: int, seed: int) -> None:
        self.cuts = 0
        self.is_cutting = True
        self._port = port
        self._random = random.Random(seed)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [asyncio.create_task(self._pass(reader, to)), asyncio.create_task(self._pass(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await closed(to, writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.is_cutting and self._random.random() < 0.03:
                self.cuts += 1
                writer.write(data[: self._random.randrange(len(data))])
                if self._random.random() < 0.3:
                    writer.write(self._random.randbytes(50))
                await writer.drain()
                return
            writer.write(data)
            await writer.drain()


@pytest.mark.parametrize("seed", range(2))
async def test_rabbitmq_whose_connections_are_cut_at_any_byte(rabbitmq_url: str, seed: int) -> None:
    real = urlsplit(rabbitmq_url)
    assert real.port
    proxy, findings = CuttingProxy(real.port, seed), Findings()
    with watched(findings):
        async with serving(proxy.serve) as port, asyncio.timeout(120):
            proxy.is_cutting = False
            login = real.netloc.rpartition("@")[0]
            url = real._replace(netloc=f"{login}@127.0.0.1:{port}").geturl() + "&delay=0.05&timeout=60"
            buses = [await RabbitBus.connect(url), await RabbitBus.connect(url)]
            load = BusLoad(buses, findings)
            await load.open()
            proxy.is_cutting = True
            working = asyncio.create_task(load.run())
            await asyncio.sleep(2)
            proxy.is_cutting = False
            load.stop()
            await working
            await load.check()
            for bus in buses:
                await bus.close()
    assert proxy.cuts
    assert (dict(findings.escaped), dict(findings.unseen), findings.wrong) == ({}, {}, [])
