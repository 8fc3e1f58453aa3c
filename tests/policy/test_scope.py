"""Scope: which links belong to the crawl, and that no disguise gets a private address in."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from uttu.model.url import canonical
from uttu.policy import scope
from uttu.policy.scope import Scope, is_private_address, is_private_host


def test_without_limits_the_whole_web_is_in_scope() -> None:
    limits = Scope()
    assert limits.refuse("https://example.com/a?b", 1000) is None
    assert limits.refuse("http://example.com:8080/", 0) is None
    assert limits.refuse("http://8.8.8.8/", 0) is None


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "mailto:a@example.com", "javascript:void(0)", "", "/a", "http://"]
)
def test_only_the_web(url: str) -> None:
    assert Scope().refuse(url, 0) == "not an http or https URL"


def test_depth_and_length() -> None:
    limits = Scope(max_depth=2, max_url_length=30)
    assert limits.refuse("https://example.com/", 2) is None
    assert limits.refuse("https://example.com/", 3) == "deeper than 2 links"
    assert limits.refuse("https://example.com/" + "a" * 10, 0) is None
    assert limits.refuse("https://example.com/" + "a" * 11, 0) == "longer than 30 characters"


@pytest.mark.parametrize(
    "domain", ["example.com", ".Example.com", "*.example.com", "https://example.com/x", "example.com."]
)
def test_a_domain_holds_its_subdomains(domain: str) -> None:
    limits = Scope(domains=(domain,))
    for host in (
        "example.com",
        "www.example.com",
        "a.b.example.com",
        "example.com:8080",
        "user@example.com",
        "example.com.",
    ):
        assert limits.refuse(f"https://{host}/", 0) is None, host
    for host in ("example.org", "notexample.com", "example.com.evil.org", "com"):
        assert limits.refuse(f"https://{host}/", 0) == "outside the allowed domains", host


def test_odd_domains() -> None:
    assert Scope(domains=("bücher.de",)).refuse(canonical("https://www.bücher.de/"), 0) is None
    limits = Scope(domains=("localhost:8000",), private=True)
    assert limits.refuse("http://localhost:8000/", 0) is None
    assert limits.refuse("http://localhost:9000/", 0) is not None
    assert Scope(domains=("not a domain",)).refuse("https://example.com/", 0) is not None


PRIVATE = [
    "localhost",
    "app.localhost",
    "printer.local",
    "metadata.google.internal",
    "router",
    "nas.lan",
    "x.home.arpa",
    "127.0.0.1",
    "127.9.9.9",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "240.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "[::1]",
    "[::]",
    "[fe80::1]",
    "[fc00::1]",
    "[fd12::1]",
    "[ff02::1]",
    "[fec0::1]",
    "[2001:db8::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[2002:7f00:1::]",
    "[2001:0:1::1]",
    "localhost.",
    "127.1",
    "0x7f.0.0.1",
    "2130706433",
    "0177.0.0.1",
    "LOCALHOST",
    "127.0.0.1.",
    "１２７.0.0.1",
    "%31%32%37.0.0.1",
    "user:pw@127.0.0.1",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_hosts_are_not_followed(host: str) -> None:
    for url in (
        f"http://{host}/",
        canonical(f"http://{host}/"),
        f"https://{host}:8443/x?y",
        f"http://{host}?q",
        f"http:{host}",
    ):
        assert Scope().refuse(url, 0) == "a private address", url
        assert Scope(private=True).refuse(url, 0) is None, url


@pytest.mark.parametrize(
    "host",
    [
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "[2606:4700::1111]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::8.8.8.8]",
        "example.com",
        "localhost.example.com",
        "internal.example.com",
        "mylocal.host",
        "10.example.com",
    ],
)
def test_public_hosts_are(host: str) -> None:
    assert Scope().refuse(canonical(f"http://{host}/"), 0) is None


def test_start_host_is_in_scope_with_its_port_only() -> None:
    limits = Scope(start_hosts=frozenset({"localhost:8000", "10.0.0.5"}))
    assert limits.refuse("http://localhost:8000/a", 1) is None
    assert limits.refuse("http://localhost:9000/a", 1) == "a private address"
    assert limits.refuse("http://localhost/a", 1) == "a private address"
    assert limits.refuse("https://10.0.0.5/", 1) is None
    assert limits.refuse("http://10.0.0.6/", 1) == "a private address"


def test_private_host_may_link_to_itself_with_its_port_only() -> None:
    limits = Scope()
    for url in ("http://10.0.0.5/a", "https://10.0.0.5/a", "http://10.0.0.5:80/a", "http://0xa.0.0.5/a"):
        assert limits.refuse(url, 1, "10.0.0.5") is None, url
        assert limits.refuse(url, 1, "example.com") == limits.refuse(url, 1) == "a private address", url
    assert limits.refuse("http://10.0.0.5:8080/a", 1, "10.0.0.5") == "a private address"
    assert limits.refuse("http://10.0.0.6/", 1, "10.0.0.5") == "a private address"
    assert limits.refuse("http://router/", 1, "router") is None
    assert Scope(domains=["example.com"]).refuse("http://10.0.0.5/", 1, "10.0.0.5") == "outside the allowed domains"
    assert Scope(max_depth=1).refuse("http://10.0.0.5/", 2, "10.0.0.5") == "deeper than 1 links"


def test_addresses_as_resolvers_give_them() -> None:
    assert is_private_address("fe80::1%eth0")
    assert is_private_address("::ffff:192.168.0.1")
    assert not is_private_address("93.184.216.34")
    assert not is_private_address("2606:2800:220:1::1")
    assert is_private_address("not an address")
    assert is_private_host("[::1]")
    assert not is_private_host("example.com")


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "MAX_ORIGINS", 10)
    limits = Scope(domains=("example.com",))
    for i in range(100):
        assert limits.refuse(f"https://h{i}.example.com/", 0) is None
        assert limits.refuse(f"https://h{i}.example.org/", 0) is not None
        assert len(limits._verdicts) <= 10


private_v4 = st.one_of(
    *(
        st.integers(int(IPv4Address(first)), int(IPv4Address(last)))
        for first, last in [
            ("10.0.0.0", "10.255.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("0.0.0.0", "0.255.255.255"),
            ("224.0.0.0", "255.255.255.255"),
        ]
    )
)


def spellings(number: int) -> list[str]:
    """The ways to write an IPv4 address that browsers understand."""
    a, b, c, d = number.to_bytes(4)
    encoded = "".join(f"%{ord(character):02x}" for character in f"{a}.{b}.{c}.{d}")
    v6 = IPv6Address(0xFFFF_0000_0000 | number)
    return [
        f"{a}.{b}.{c}.{d}",
        f"{a}.{b}.{c}.{d}.",
        f"{number}",
        hex(number),
        hex(number).upper(),
        f"0{number:o}",
        f"{a}.{number & 0xFFFFFF}",
        f"{a}.{b}.{number & 0xFFFF}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a:#x}.{b}.0{c:o}.{d}",
        encoded,
        f"[::ffff:{a}.{b}.{c}.{d}]",
        f"[{v6.compressed}]",
        f"[{v6.exploded}]",
        f"[64:ff9b::{a}.{b}.{c}.{d}]",
    ]


@given(private_v4, st.sampled_from(["http", "https", "HTTP"]), st.sampled_from(["", ":80", ":8443"]))
def test_private_address_is_refused_in_every_form(number: int, scheme: str, port: str) -> None:
    limits = Scope()
    for host in spellings(number):
        try:
            url = canonical(f"{scheme}://{host}{port}/path")
        except ValueError:
            continue
        assert limits.refuse(url, 0) is not None, host
        assert limits.refuse(f"{scheme}://{host}{port}/path", 0) is not None, host


@given(st.ip_addresses(v=4))
def test_address_is_treated_alike_in_all_forms(ip: IPv4Address) -> None:
    private = is_private_address(str(ip))
    assert is_private_address(f"::ffff:{ip}") == private
    assert is_private_address(f"[64:ff9b::{ip}]") == private
    assert is_private_host(str(ip)) == private


@given(st.ip_addresses())
def test_what_python_calls_private_is(ip: IPv4Address | IPv6Address) -> None:
    if ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        assume(not (isinstance(ip, IPv6Address) and ip.ipv4_mapped))
        assert is_private_address(str(ip))


@given(st.text(), st.integers(0, 10))
def test_no_url_raises(text: str, depth: int) -> None:
    limits = Scope(domains=("example.com",), max_depth=5)
    for url in (text, "http://" + text, "https://example.com/" + text):
        assert isinstance(limits.refuse(url, depth), str | None)
