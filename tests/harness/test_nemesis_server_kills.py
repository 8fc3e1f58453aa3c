"""Servers killed under load: a short form of ``python -m tests.harness.nemesis.server_kills``.

RabbitMQ and Kafka take long to start again; that they are killed is tested with their buses.
"""

from __future__ import annotations

import pytest

from tests.harness.nemesis.server_kills import hurt, made


@pytest.mark.parametrize(("kind", "seconds"), [("redis", 2.0), ("cluster", 4.0), ("sentinel", 2.0)])
async def test_no_error_of_a_driver_escapes(kind: str, seconds: float) -> None:
    with made(kind) as servers:
        findings = await hurt(servers, seed=4, seconds=seconds)
    assert findings.calls
    assert findings.harms
    assert (dict(findings.escaped), dict(findings.unseen), findings.wrong) == ({}, {}, [])
