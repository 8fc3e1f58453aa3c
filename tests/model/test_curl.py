from __future__ import annotations

import contextlib
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uttu.model import Request
from uttu.model.curl import parse_curl, split_words

URL = "http://a.example/"

CHROME = r"""
curl 'https://shop.example/api/items?page=2' \
  -H 'accept: application/json' \
  -H 'accept-language: en-GB,en;q=0.9' \
  -H 'content-type: application/json;charset=UTF-8' \
  -b 'session=abc=; theme=dark' \
  -H 'origin: https://shop.example' \
  -H 'user-agent: Mozilla/5.0 (X11; Linux x86_64)' \
  --data-raw $'{"name":"O\'Neil\u0021","note":"caf\u00e9 \ud83d\ude00"}' \
  --compressed
"""

FIREFOX = r"""curl 'https://shop.example/' -X POST -H 'User-Agent: Mozilla/5.0' -H 'Accept-Encoding: gzip, br' \
 -H 'Cookie: a=1; b=2' -H 'Connection: keep-alive' -H 'TE: trailers' --data-raw 'q=uttu&x=%20'"""


def test_as_chrome_copies_it() -> None:
    request = parse_curl(CHROME)
    assert request.url == "https://shop.example/api/items?page=2"
    assert request.method == "POST"
    assert request.body == '{"name":"O\'Neil!","note":"café 😀"}'.encode()
    assert request.cookies == {"session": "abc=", "theme": "dark"}
    assert request.headers == {
        "accept": "application/json",
        "accept-language": "en-GB,en;q=0.9",
        "content-type": "application/json;charset=UTF-8",
        "origin": "https://shop.example",
        "user-agent": "Mozilla/5.0 (X11; Linux x86_64)",
    }


def test_as_firefox_copies_it() -> None:
    request = parse_curl(FIREFOX)
    assert (request.method, request.body) == ("POST", b"q=uttu&x=%20")
    assert request.cookies == {"a": "1", "b": "2"}
    assert request.headers == {
        "User-Agent": "Mozilla/5.0",
        "TE": "trailers",
        "Content-Type": "application/x-www-form-urlencoded",
    }


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ("", {}),
        ("-s -S -L -k --compressed -o out.html --max-time 5", {}),
        ("-sSLk -oout.html", {}),
        ("-X DELETE", {"method": "DELETE"}),
        ("-XDELETE", {"method": "DELETE"}),
        ("-I", {"method": "HEAD"}),
        ("-d a=1", {"method": "POST", "body": b"a=1"}),
        ("-d a=1 --data b=2", {"method": "POST", "body": b"a=1&b=2"}),
        ("-X PUT -d a=1", {"method": "PUT", "body": b"a=1"}),
        ("-d ''", {"method": "POST", "body": b""}),
        ("--data-raw @x", {"method": "POST", "body": b"@x"}),
        ("--data-binary $'\\xff\\n'", {"method": "POST", "body": b"\xff\n"}),
        ("--data-urlencode 'q=a b&é' -d c", {"method": "POST", "body": b"q=a%20b%26%C3%A9&c"}),
        ("--data-urlencode 'a b'", {"method": "POST", "body": b"a%20b"}),
        ("--data-urlencode '=a b'", {"method": "POST", "body": b"a%20b"}),
        ("-G -d a=1 --data-urlencode 'b=x y'", {"url": URL + "?a=1&b=x%20y"}),
        ("-A Mine/1", {"headers": {"User-Agent": "Mine/1"}}),
        ("-e 'http://b.example/;auto'", {"headers": {"Referer": "http://b.example/"}}),
        ("-u me:pass", {"headers": {"Authorization": "Basic bWU6cGFzcw=="}}),
        ("-r 0-99", {"headers": {"Range": "bytes=0-99"}}),
        ("-H X-Empty\\;", {"headers": {"X-Empty": ""}}),
        ("-H Accept:", {}),
        ("-H 'X: a' -H 'x: b'", {"headers": {"x": "a, b"}}),
        ("-H ':authority: a.example' -H 'Content-Length: 5'", {}),
        ("-b a=1 -H 'cookie: b=2; a=3'", {"cookies": {"a": "3", "b": "2"}}),
        ("-x proxy.example:3128", {"proxy": "http://proxy.example:3128"}),
        ("-x https://proxy.example -U 'me:p@ss'", {"proxy": "https://me:p%40ss@proxy.example"}),
        ("--socks5-hostname 127.0.0.1:1080", {"proxy": "socks5h://127.0.0.1:1080"}),
        ("--http2 --tlsv1.2 --no-keepalive -4", {}),
    ],
)
def test_options(arguments: str, fields: dict[str, Any]) -> None:
    for command in (f"curl {arguments} '{URL}'", f"curl '{URL}' {arguments}", f"curl --url {URL} {arguments}"):
        request = parse_curl(command)
        if "body" in fields:
            headers = {"Content-Type": "application/x-www-form-urlencoded"} | fields.get("headers", {})
            assert request == Request.to(URL, **fields | {"headers": headers})
        else:
            assert request == Request.to(**{"url": URL} | fields)


def test_json() -> None:
    request = parse_curl(f"""curl {URL} --json '{{"a":1}}'""")
    assert (request.method, request.body) == ("POST", b'{"a":1}')
    assert request.headers == {"Content-Type": "application/json", "Accept": "application/json"}


def test_urls_are_made_canonical() -> None:
    assert parse_curl("curl A.example/a/../b#c").url == "http://a.example/b"
    assert parse_curl("curl 'http://a.example/#x' -G -d q=1").url == "http://a.example/?q=1"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "must begin with 'curl'"),
        ("wget http://a.example/", "must begin with 'curl'"),
        ("curl", "no URL"),
        ("curl -d x", "no URL"),
        ("curl http://a.example/ http://b.example/", "several URLs"),
        ("curl ftp://a.example/", "not an absolute http"),
        ("curl http://a.example/ -H", "-H needs a value"),
        ("curl http://a.example/ -H nonsense", "no colon"),
        ("curl http://a.example/ --frobnicate", "unknown curl option --frobnicate"),
        ("curl http://a.example/ -sZ", "unknown curl option -Z"),
        ("curl http://a.example/ -F a=@b", "multipart"),
        ("curl http://a.example/ -T file", "uploads"),
        ("curl http://a.example/ -d @file", "from a file"),
        ("curl http://a.example/ --data-urlencode a@file", "from a file"),
        ("curl http://a.example/ -b cookies.txt", "from a file"),
        ("curl http://a.example/ -H @file", "from a file"),
        ("curl 'http://a.example/", "a quote is not closed"),
        ("curl $'http://a.example/", "a quote is not closed"),
        ('curl "http://a.example/', "a quote is not closed"),
        ("curl http://a.example/?a=1&b=2", "put the URL in quotes"),
        ("curl http://a.example/ | jq", "paste one command only"),
        ("curl http://a.example/$HOME", "only a plain command"),
        ('curl "http://a.example/$(id)"', "only a plain command"),
        ("curl `id`", "only a plain command"),
    ],
)
def test_errors_say_what_is_wrong(command: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("$", r"\$")):
        parse_curl(command)


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_words_are_split_as_shlex_joins_them(words: list[str]) -> None:
    assert split_words(shlex.join(words)) == words


@given(st.text())
def test_split_raises_nothing_but_value_error(command: str) -> None:
    with contextlib.suppress(ValueError):
        split_words(command)


@pytest.mark.parametrize(
    "word",
    [
        r"$'a\nb\t\\\'\"\x41\101\u00e9\U0001F600\e'",
        r"$'\cA\q\?'",
        r'"a\"b\$c\\d\e"',
        r"a\ b\'c",
        r"'a'\''b'",
        r"""a'b'"c"d""",
        r"$",
        r"a$",
        '"a\\\nb"',
        "a\\\nb",
    ],
)
def test_words_as_bash_reads_them(word: str) -> None:
    printed = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert split_words(word) == [printed.stdout.decode()]
