"""Times, sizes and tables."""

from __future__ import annotations

import pytest

from uttu.cli.output import Screen, format_age, format_count, format_duration, format_moment, format_size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0012, "1 ms"),
        (0.03, "30 ms"),
        (0.5, "0.5 s"),
        (2, "2 s"),
        (9.96, "10 s"),
        (12.4, "12 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (3600, "60 min"),
        (7200, "2 h"),
        (172_800, "2 days"),
        (-3, "0 s"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_moments() -> None:
    assert format_age(0.2) == "now"
    assert format_age(60) == "60 s ago"
    assert format_age(-600) == "in 10 min"
    noon = 1_700_049_600.0
    assert format_moment(noon, noon + 180).endswith(":00, 3 min ago")
    assert format_moment(noon, noon + 30 * 86400).startswith("2023-11-15 ")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (123_456, "123 kB"),
        (999_499, "999 kB"),
        (999_600, "1.0 MB"),
        (5.2e9, "5.2 GB"),
        (7.5e12, "7,500 GB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert format_size(count) == text


def test_numbers() -> None:
    assert [format_count(count, "try", "tries") for count in (0, 1, 2000)] == ["0 tries", "1 try", "2,000 tries"]


def test_tables_that_are_read_by_programs_are_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    url = "https://example.org/" + "x" * 300
    Screen().table(("url", "n"), [(url, "1"), ("[b]\nc", "20")], numbers=("n",))
    head, first, second = capsys.readouterr().out.splitlines()
    assert first == f"{url}   1"
    assert second.split() == ["[b]", "c", "20"]
    assert len(head) == len(first) == len(second)
