"""Passwords in addresses are not shown."""

from __future__ import annotations

import pytest

from uttu.clients.addresses import mask_logins, mask_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:secret@localhost/0", "redis://:***@localhost/0"),
        ("rediss://me:s3cr:e@t/@localhost/0", "rediss://me:***@localhost/0"),
        ("redis://me@corp.example:secret@localhost", "redis://me@corp.example:***@localhost"),
        ("redis://us/er:secret@localhost", "redis://us/er:***@localhost"),
        ("redis:/:secret@localhost", "redis:/:***@localhost"),
        ("redis+unix://me:secret@/run/redis.sock?db=1", "redis+unix://me:***@/run/redis.sock?db=1"),
        ("redis+sentinel://a,b/x?sentinel_password=secret&db=2", "redis+sentinel://a,b/x?sentinel_password=***&db=2"),
        ("sqlite:/data/shop", "sqlite:/data/shop"),
        (
            "amqp://h/v?management=http%3A%2F%2Fadmin%3Asecret%40m&queues=classic",
            "amqp://h/v?management=***&queues=classic",
        ),
        ("amqp://u:secret@h/v?management=http://a:secret@m&heartbeat=5", "amqp://u:***@m&heartbeat=5"),
        ("amqp://h?password=secret&management=http://a:secret@m", "amqp://h?password=***&management=***"),
        (
            "kafkas://h:9092?ssl.key.password=secret&Password=secret",
            "kafkas://h:9092?ssl.key.password=***&Password=***",
        ),
        ("redis://h?pass%77ord=se@cret", "redis://h?pass%77ord=***"),
        ("redis://:what?secret=1@h/0?db=1", "redis://:***@h/0?db=1"),
        ("redis://:sec\nret@h", "redis://:***@h"),
        ("kafka://h:9092,h2:9092?partitions=3", "kafka://h:9092,h2:9092?partitions=3"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert mask_password(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:secret@a.example/x", "http://me:***@a.example/x"),
        ("http://:secret@a.example", "http://:***@a.example"),
        ("http://me:s%40cr:et@a.example:8080/x@y?u=z@w", "http://me:***@a.example:8080/x@y?u=z@w"),
        ("http://a.example:80/me:secret@x", "http://a.example:80/me:secret@x"),
        ("http://a.example?mail=me:you@x", "http://a.example?mail=me:you@x"),
        ("http://me@a.example/", "http://me@a.example/"),
        (
            "http://a:b@c.example/: by the proxy socks5://d:e@f:1: refused; write to you@g.example",
            "http://a:***@c.example/: by the proxy socks5://d:***@f:1: refused; write to you@g.example",
        ),
        ("no address", "no address"),
    ],
)
def test_logins_in_a_text_are_masked(text: str, shown: str) -> None:
    assert mask_logins(text) == shown
