"""The cases of the IETF's HTTP State working group, which wrote RFC 6265: what a host sets, and what it gets back.

Two differ from the group's list: cookies are in the RFC's order, and dates that have passed since are later ones here.
"""

from __future__ import annotations

import pytest

from uttu.fetch.cookies import CookieJar, build_cookie_header
from uttu.model import Headers, Request

HOME = "http://home.example.org:8888"
RESULT = f"{HOME}/cookie-parser-result?test"
LATER = "Fri, 07 Aug 2099 08:04:19 GMT"
CHINESE = "春节回家路·春运完全手册"

CASES: dict[str, tuple[list[str], str]] = {
    "0001": (["foo=bar"], "foo=bar"),
    "0002": ([f"foo=bar; Expires={LATER}"], "foo=bar"),
    "0003": (["foo=bar; Expires=Fri, 07 Aug 2007 08:04:19 GMT", f"foo2=bar2; Expires={LATER}"], "foo2=bar2"),
    "0004": (["foo"], ""),
    "0005": (["foo=bar; max-age=10000;"], "foo=bar"),
    "0006": (["foo=bar; max-age=0;"], ""),
    "0007": (["foo=bar; version=1;"], "foo=bar"),
    "0008": (["foo=bar; version=1000;"], "foo=bar"),
    "0009": (["foo=bar; customvalue=1000;"], "foo=bar"),
    "0010": (["foo=bar; secure;"], ""),
    "0011": (['foo=bar; customvalue="1000 or more";'], "foo=bar"),
    "0012": (['foo=bar; customvalue="no trailing semicolon"'], "foo=bar"),
    "0013": (["foo=bar", "foo=qux"], "foo=qux"),
    "0014": (["foo1=bar", "foo2=qux"], "foo1=bar; foo2=qux"),
    "0015": (["a=b", "z=y"], "a=b; z=y"),
    "0016": (["z=y", "a=b"], "z=y; a=b"),
    "0017": (["z=y, a=b"], "z=y, a=b"),
    "0018": (["z=y; foo=bar, a=b"], "z=y"),
    "0019": (["foo=b;max-age=3600, c=d;path=/"], "foo=b"),
    "0020": (["a=b", "=", "c=d"], "a=b; c=d"),
    "0021": (["a=b", "=x", "c=d"], "a=b; c=d"),
    "0022": (["a=b", "x=", "c=d"], "a=b; x=; c=d"),
    "0023": (["foo", ""], ""),
    "0024": (["foo", "="], ""),
    "0025": (["foo", "; bar"], ""),
    "0026": (["foo", "   "], ""),
    "0027": (["foo", "bar"], ""),
    "attribute 1": (["foo=bar; Secure"], ""),
    "attribute 2": (["foo=bar; seCURe"], ""),
    "attribute 3": (['foo=bar; "Secure"'], "foo=bar"),
    "attribute 4": (["foo=bar; Secure="], ""),
    "attribute 5": (["foo=bar; Secure=aaaa"], ""),
    "attribute 6": (["foo=bar; Secure qux"], "foo=bar"),
    "attribute 7": (["foo=bar; Secure =aaaaa"], ""),
    "attribute 8": (["foo=bar; Secure= aaaaa"], ""),
    "attribute 9": (["foo=bar; Secure; qux"], ""),
    "attribute 10": (["foo=bar; Secure;qux"], ""),
    "attribute 11": (["foo=bar; Secure    ; qux"], ""),
    "attribute 12": (["foo=bar;                Secure"], ""),
    "attribute 13": (["foo=bar;       Secure     ;"], ""),
    "attribute 14": (["foo=bar; Path"], "foo=bar"),
    "attribute 15": (["foo=bar; Path="], "foo=bar"),
    "attribute 16": (["foo=bar; Path=/"], "foo=bar"),
    "attribute 17": (["foo=bar; Path=/qux"], ""),
    "attribute 18": (["foo=bar; Path    =/qux"], ""),
    "attribute 19": (["foo=bar; Path=    /qux"], ""),
    "attribute 20": (["foo=bar; Path=/qux      ; taz"], ""),
    "attribute 21": (["foo=bar; Path=/qux; Path=/"], "foo=bar"),
    "attribute 22": (["foo=bar; Path=/; Path=/qux"], ""),
    "attribute 23": (["foo=bar; Path=/qux; Path=/cookie-parser-result"], "foo=bar"),
    "attribute 24": (["foo=bar; Path=/cookie-parser-result; Path=/qux"], ""),
    "attribute 25": (["foo=bar; qux; Secure"], ""),
    "attribute 26": (['foo=bar; qux="aaa;bbb"; Secure'], ""),
    "charset 1": ([f"foo={CHINESE}"], f"foo={CHINESE}"),
    "charset 2": ([f"春节回={CHINESE}"], f"春节回={CHINESE}"),
    "charset 3": (["春节回=家路·春运; 完全手册"], "春节回=家路·春运"),
    "charset 4": ([f'foo="{CHINESE}"'], f'foo="{CHINESE}"'),
    "chromium 2": (['aBc="zzz "   ;'], 'aBc="zzz "'),
    "chromium 4": (['aBc="zz;pp" ; ;'], 'aBc="zz'),
    "chromium 5": (['aBc="zz ;'], 'aBc="zz'),
    "chromium 6": (['aBc="zzz "   "ppp"  ;'], 'aBc="zzz "   "ppp"'),
    "chromium 8": (['aBc=A"B ;'], 'aBc=A"B'),
    "chromium 9": (["BLAHHH; path=/;"], ""),
    "chromium 10": (['"BLA\\"HHH"; path=/;'], ""),
    "chromium 11": (['a="B'], 'a="B'),
    "chromium 12": (["=ABC"], ""),
    "chromium 13": (["ABC=;  path = /"], "ABC="),
    "chromium 14": (["  A  = BC  ;foo;;;   bar"], "A=BC"),
    "chromium 15": (["  A=== BC  ;foo;;;   bar"], "A=== BC"),
    "chromium 16": ([f'foo="zoh"  ; expires={LATER} ; path=/  ;  '], 'foo="zoh"'),
    "chromium 18": (["    "], ""),
    "chromium 19": (["a" * 4100], ""),
    "chromium 21": ([""], ""),
    "comma 1": (["foo=bar, baz=qux"], "foo=bar, baz=qux"),
    "comma 2": (['foo="bar, baz=qux"'], 'foo="bar, baz=qux"'),
    "comma 3": (["foo=bar; b,az=qux"], "foo=bar"),
    "comma 4": (["foo=bar; baz=q,ux"], "foo=bar"),
    "comma 5": (["foo=bar; Max-Age=50,399"], "foo=bar"),
    "comma 7": (["foo=bar; Expires=Fri 07 Aug 2099 08:04:19 GMT, baz=qux"], "foo=bar"),
    "mozilla 1": (["foo=bar; max-age=-1"], ""),
    "mozilla 3": (["foo=bar; expires=Thu, 10 Apr 1980 16:33:12 GMT"], ""),
    "mozilla 8": (["foo=bar; max-age=60", "foo1=bar; max-age=60"], "foo=bar; foo1=bar"),
    "mozilla 9": (["foo=bar; max-age=60", "foo1=bar; max-age=60", "foo=differentvalue; max-age=0"], "foo1=bar"),
    "mozilla 11": (["test=parser; domain=.parser.test; ;; ;=; ,,, ===,abc,=; abracadabra! max-age=20;=;;"], ""),
    "mozilla 12": (
        ['test="fubar! = foo;bar\\";" parser; max-age=6', "five; max-age=2.63,"],
        'test="fubar! = foo',
    ),
    "mozilla 13": (["test=kill; max-age=0", "five; max-age=0"], ""),
    "mozilla 17": (["six", "seven", " =eight", "test=six"], "test=six"),
    "name 17": (["=a=bar"], ""),
    "name 18": (["a =bar"], "a=bar"),
    "name 20": (['"a=b"=bar'], '"a=b"=bar'),
    "name 21": (['"a=b"=bar', '"a=qux'], '"a=qux'),
    "name 22": (["   foo=bar"], "foo=bar"),
    "name 23": (["foo;bar=baz"], ""),
    "name 24": (["$Version=1; foo=bar"], "$Version=1"),
    "name 25": (["===a=bar"], ""),
    "name 27": (["foo=bar    ;"], "foo=bar"),
    "name 30": (["foo bar=baz"], "foo bar=baz"),
    "name 31": (['"foo;bar"=baz'], ""),
    "name 32": (['"foo\\"bar', '"foo\\"bar;baz"=qux'], ""),
    "path 1": (["a=b; path=/", "x=y; path=/cookie-parser-result"], "x=y; a=b"),
    "path 2": (["a=b; path=/cookie-parser-result", "x=y; path=/"], "a=b; x=y"),
    "path 5": (["foo=bar; path=/cookie-parser-result/foo"], ""),
    "path 6": (["foo=bar", "foo=qux; path=/cookie-parser-result/foo"], "foo=bar"),
    "path 22": (["foo=bar; path= /"], "foo=bar"),
    "path 23": (["foo=bar; Path=/cookie-PARSER-result"], ""),
    "path 29": (["a=b;  path  =   /cookie-parser-result   ", "x=y;   path   =   /book   "], "a=b"),
    "path 30": (["foo=bar; path=/dog; path="], "foo=bar"),
    "path 31": (["foo=bar; path=; path=/dog"], ""),
    "value 1": (["foo=  bar"], "foo=bar"),
    "value 2": (['foo="bar"'], 'foo="bar"'),
    "value 3": (['foo="  bar "'], 'foo="  bar "'),
    "value 4": (['foo="bar;baz"'], 'foo="bar'),
    "value 5": (['foo="bar=baz"'], 'foo="bar=baz"'),
    "value 6": (["   foo     =       bar             ;       ttt"], "foo=bar"),
    **{
        f"name {character}": ([f"{character}a=bar"], f"{character}a=bar")
        for character in ("1", "$", "!", "@", "#", "%", "^", "&", "*", "(", ")", "-", "_", "+", '"')
    },
}

ELSEWHERE: dict[str, tuple[list[str], str, str]] = {
    "domain 1": (["foo=bar; domain=home.example.org"], HOME, "foo=bar"),
    "domain 2": (["foo=bar; domain=home.example.org"], "http://sibling.example.org:8888", ""),
    "domain 3": (["foo=bar; domain=.home.example.org"], HOME, "foo=bar"),
    "domain 4": (["foo=bar; domain=home.example.org"], "http://subdomain.home.example.org:8888", "foo=bar"),
    "domain 5": (["foo=bar; domain=.home.example.org"], "http://subdomain.home.example.org:8888", "foo=bar"),
    "domain 7": (["foo=bar; domain=sibling.example.org"], "http://sibling.example.org:8888", ""),
    "domain 8": (["foo=bar; domain=.example.org"], HOME, "foo=bar"),
    "domain 10": (["foo=bar; domain=..home.example.org"], HOME, ""),
    "domain 11": (["foo=bar; domain=home..example.org"], HOME, ""),
    "domain 12": (["foo=bar; domain=  .home.example.org"], HOME, "foo=bar"),
    "domain 13": (["foo=bar; domain=  .  home.example.org"], HOME, ""),
    "domain 14": (["foo=bar; domain=home.example.org."], HOME, ""),
    "domain 15": (["foo=bar; domain=home.example.org.."], HOME, ""),
    "domain 16": (["foo=bar; domain=home.example.org ."], HOME, ""),
    "domain 17": (["foo=bar; domain=.org"], HOME, ""),
    "domain 18": (["foo=bar; domain=.org."], HOME, ""),
    "domain 19": (
        ["foo=bar; domain=home.example.org", "foo2=bar2; domain=.home.example.org"],
        HOME,
        "foo=bar; foo2=bar2",
    ),
    "domain 21": (['foo=bar; domain="home.example.org"'], HOME, ""),
    "domain 23": (["foo2=bar2; domain=.example.org", "foo=bar; domain=home.example.org"], HOME, "foo2=bar2; foo=bar"),
    "domain 24": (["foo=bar; domain=.example.org; domain=home.example.org"], "http://sibling.example.org:8888", ""),
    "domain 25": (["foo=bar; domain=home.example.org; domain=.example.org"], "http://sibling.example.org", "foo=bar"),
    "domain 26": (["foo=bar; domain=home.eXaMpLe.org"], HOME, "foo=bar"),
    "domain 27": (["foo=bar; domain=home.example.org:8888"], HOME, ""),
    "domain 28": (["foo=bar; domain=subdomain.home.example.org"], "http://subdomain.home.example.org:8888", ""),
    "domain 29": (["foo=bar"], "http://subdomain.home.example.org:8888", ""),
    "domain 33": (["foo=bar; domain=home.example.org"], "http://hoMe.eXaMplE.org:8888", "foo=bar"),
    "domain 34": (["foo=bar; domain=home.example.org; domain=home.example.com"], HOME, ""),
    "domain 35": (["foo=bar; domain=home.example.com; domain=home.example.org"], HOME, "foo=bar"),
    "domain 42": (["foo=bar; domain=.sibling.home.example.org"], "http://sibling.home.example.org:8888", ""),
    "domain 30, optional": (["foo=bar; domain="], HOME, "foo=bar"),
    "domain 41, optional": (["foo=bar; domain=example.org; domain="], HOME, "foo=bar"),
    "domain 42, optional": (["foo=bar; domain=foo.example.org; domain="], HOME, ""),
    "ordering 1": (
        [
            "key=val0;",
            "key=val1; path=/cookie-parser-result",
            "key=val2; path=/",
            "key=val3; path=/bar",
            "key=val4; domain=.example.org",
            "key=val5; domain=.example.org; path=/cookie-parser-result/foo",
        ],
        f"{HOME}/cookie-parser-result/foo/baz?test",
        "key=val5; key=val1; key=val2; key=val4",
    ),
    "path 7": (["foo=bar; path=/cookie-parser-result/foo"], f"{HOME}/cookie-parser-result/foo?test", "foo=bar"),
    "path 8": (["foo=bar; path=/cookie-parser-result/foo"], f"{HOME}/cookie-parser-result/bar?test", ""),
    "path 10": (["foo=bar; path=/a/foo/qux"], f"{HOME}/a/foo/qux?test", "foo=bar"),
    "path 14": (["foo=bar; path=/a/foo/qux/"], f"{HOME}/a/foo/qux?test", ""),
    "path 15": (["foo=bar; path=/a/foo/qux/"], f"{HOME}/a/foo/qux/?test", "foo=bar"),
    "path 17": (["foo=bar; path=/a/foo/"], f"{HOME}/a/foo//qux?test", "foo=bar"),
    "path 18": (["foo=bar; path=/a/foo/"], f"{HOME}/a/fooqux?test", ""),
    "path 24": (["foo=bar; path=/a/foo/qux?"], f"{HOME}/a/foo/qux?test", ""),
    "path 25": (["foo=bar; path=/a/foo/qux#"], f"{HOME}/a/foo/qux?test", ""),
    "path 27": (['foo=bar; path="/a/foo/qux;"'], f"{HOME}/a/foo/qux?test", "foo=bar"),
    "path 28": (["foo=bar; path=/a/f%6Fo/bar"], f"{HOME}/a/foo/bar?test", ""),
    "path 32": (["foo=bar; path=/a", "foo=qux; path=/a/"], f"{HOME}/a/dog?test", "foo=qux; foo=bar"),
}


def sent_after(received: list[str], url: str) -> str:
    jar = CookieJar()
    jar.store(Headers([("set-cookie", header) for header in received]), f"{HOME}/cookie-parser?test")
    return build_cookie_header(jar, Request.to(url))


@pytest.mark.parametrize("name", CASES)
def test_on_the_same_host(name: str) -> None:
    received, sent = CASES[name]
    assert sent_after(received, RESULT) == sent


@pytest.mark.parametrize("name", ELSEWHERE)
def test_cookies_on_other_hosts(name: str) -> None:
    received, url, sent = ELSEWHERE[name]
    assert sent_after(received, url) == sent
