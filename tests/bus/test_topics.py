"""Topics in addresses, and names as words of topics."""

from __future__ import annotations

import pytest

from uttu.bus.topics import check_topic, split_topic, to_word


@pytest.mark.parametrize(
    ("address", "url", "topic"),
    [
        ("redis://h:1/0", "redis://h:1/0", "default"),
        ("redis://h:1/0?topic=a.b", "redis://h:1/0", "a.b"),
        ("redis://u:p?@h/0?db=1&topic=a&ssl_ca_certs=f", "redis://u:p?@h/0?db=1&ssl_ca_certs=f", "a"),
        ("kafka://h,h2:9?topic=a&acks=all", "kafka://h,h2:9?acks=all", "a"),
        ("amqp://h/v?subtopic=x", "amqp://h/v?subtopic=x", "default"),
        ("redis://h?topic=a%2Eb", "redis://h", "a.b"),
    ],
)
def test_the_topic_is_taken_out_of_the_address(address: str, url: str, topic: str) -> None:
    assert split_topic(address, "default") == (url, topic)


@pytest.mark.parametrize("topic", ["", "a b", "a..b", "a.*"])
def test_invalid_topic_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="is not a topic"):
        split_topic(f"redis://h?topic={topic}", "default")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop", "shop"),
        ("shop.example", "shop-example-310b53c3"),
        ("é x", "--x-7bf4d70a"),
        ("x" * 150, "x" * 150),
        ("x" * 300, "x" * 141 + "-a5d1b460"),
    ],
)
def test_any_name_makes_one_word(name: str, expected: str) -> None:
    assert to_word(name) == expected
    check_topic(f"control.{to_word(name)}")
    check_topic(f"crawl.{to_word(name)}.worker")


def test_different_names_make_different_words() -> None:
    names = [
        "магазин",
        "витрина",
        "shop.example",
        "shop-example",
        "",
        "-",
        "\udcff",
        *("x" * length for length in (300, 301)),
    ]
    assert len({to_word(name) for name in names}) == len(names)
