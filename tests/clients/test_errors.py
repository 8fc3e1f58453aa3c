"""Who raised an exception: the driver, or our own code."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import redis
from redis._parsers import helpers

from uttu.clients import is_raised_in, summarize_error
from uttu.clients.redis.errors import map_errors


def fail_in_driver() -> None:
    """Raise an AttributeError in a frame of redis-py."""
    parse_info: Any = helpers.parse_info
    parse_info(None)


def test_error_raised_in_the_driver_is_the_drivers() -> None:
    with pytest.raises(AttributeError) as raised:
        fail_in_driver()
    assert is_raised_in(raised.value, {"redis"})
    assert not is_raised_in(raised.value, {"aiormq"})


def test_error_of_the_standard_library_is_its_callers() -> None:
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads("{")
    assert not is_raised_in(raised.value, {"redis"})


def test_error_that_was_never_raised() -> None:
    assert not is_raised_in(ValueError("made, not raised"), {"redis"})


async def test_driver_error_through_a_future_is_the_drivers() -> None:
    async def call() -> None:
        fail_in_driver()

    (error,) = await asyncio.gather(call(), return_exceptions=True)
    assert isinstance(error, AttributeError)
    with pytest.raises(AttributeError) as raised:
        raise error
    assert is_raised_in(raised.value, {"redis"})


def test_an_error_of_the_driver_becomes_a_broken_connection() -> None:
    with pytest.raises(redis.ConnectionError, match="AttributeError") as raised, map_errors():
        fail_in_driver()
    assert isinstance(raised.value.__cause__, AttributeError)


def test_error_in_our_code_propagates() -> None:
    with pytest.raises(AttributeError), map_errors():
        None.writelines  # type: ignore[attr-defined]  # noqa: B018


def test_error_in_a_callback_is_not_the_drivers() -> None:
    def ours(_: object) -> None:
        raise KeyError("ours")

    client = redis.Redis()
    client.set_response_callback("PING", ours)
    with pytest.raises(KeyError), map_errors():
        client.response_callbacks["PING"](b"PONG")


def test_an_exception_in_one_line() -> None:
    assert summarize_error(ValueError("one\ntwo")) == "ValueError: one"
    assert summarize_error(ValueError()) == "ValueError"
