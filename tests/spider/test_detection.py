"""Texts that are not UTF-8 and declare no encoding."""

from __future__ import annotations

import time

import pytest

from uttu.spider.detection import detect
from uttu.testing.pages import page_of

JAPANESE = "このページはブラウザでも正しく読めます。新しいニュースは毎朝ここに載せています。"
SIMPLIFIED = "这个网站的新闻每天都会更新，我们会把最重要的事情放在前面，请大家多多关注。"
TRADITIONAL = "這個網站的新聞每天都會更新，我們會把最重要的事情放在前面，請大家多多關注。"
KOREAN = "이 페이지는 새로운 소식을 매일 아침에 전합니다. 궁금한 것이 있으면 언제든지 문의하세요."
RUSSIAN = "Новости сайта обновляются каждое утро, а самые важные события остаются на первой странице."
UKRAINIAN = "Новини сайту оновлюються щоранку, а найважливіші події залишаються на першій сторінці."
GREEK = "Οι ειδήσεις της σελίδας ανανεώνονται κάθε πρωί και οι σημαντικότερες μένουν στην αρχή."
HEBREW = "החדשות באתר מתעדכנות בכל בוקר והאירועים החשובים ביותר נשארים בעמוד הראשון."
ARABIC = "تتجدد أخبار الموقع كل صباح وتبقى الأحداث المهمة في الصفحة الأولى لمدة أسبوع."
THAI = "ข่าวของเว็บไซต์นี้มีการปรับปรุงทุกเช้าและเรื่องสำคัญจะอยู่ในหน้าแรก"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc-jp"),
        ("新着情報一覧 会社概要 採用情報 お問い合わせ", "shift_jis"),
        (SIMPLIFIED, "gbk"),
        (TRADITIONAL, "big5"),
        (KOREAN, "euc-kr"),
        (RUSSIAN, "windows-1251"),
        (RUSSIAN, "koi8-r"),
        (RUSSIAN, "iso-8859-5"),
        (RUSSIAN, "ibm866"),
        (UKRAINIAN, "windows-1251"),
        (UKRAINIAN, "koi8-u"),
        (GREEK, "windows-1253"),
        (GREEK.upper(), "iso-8859-7"),
        (HEBREW, "windows-1255"),
        (ARABIC, "windows-1256"),
        (THAI, "windows-874"),
    ],
)
@pytest.mark.parametrize("repeats", [1, 300])
def test_languages(text: str, encoding: str, repeats: int) -> None:
    codec = {"windows-874": "cp874", "ibm866": "cp866"}.get(encoding, encoding)
    html = f"<html><head><title>News</title></head><body class=x><p>{text}</p></body></html>" * repeats
    page = page_of(html.encode(codec), content_type="text/html")
    assert page.text == html
    assert page.css("p::text").get() == text


@pytest.mark.parametrize(
    "text",
    [
        "Der Bär ißt Äpfel und trinkt süßen Öltee; für später hebt er sich größere Vorräte auf.",
        "Où êtes-vous allés hier ? L\u2019été dernier, c\u2019était déjà \u201cle café crème\u201d à 3 \u20ac.",
        "El año pasado comió mañana y tarde: ¿cuándo, dónde y por qué? ¡Así está bien, señor!",
        "Não há informações disponíveis; são três opções à sua disposição, às vezes até é grátis.",
        "Blåbærsyltetøy på brød, så går vi på kjøret: ærlig, øm og åpen.",
        "ÄÖÜäöüß \u2013 ÉÈÊËéèêë",
        "\u2018It\u2019s\u2019 \u2014 \u201cthey\u2019re\u201d \u2026 \u20ac5 \u0192oo \u0192ee \u0192i",
        "© 2024 ® ™ §1 ½ °C",
    ],
)
@pytest.mark.parametrize("repeats", [1, 100])
def test_western_languages_are_windows_1252(text: str, repeats: int) -> None:
    html = f"<p>{text}</p>\n" * repeats
    page = page_of(html.encode("cp1252"), content_type="text/html")
    assert page.encoding == "windows-1252"
    assert page.text == html


def test_too_little_to_guess_from() -> None:
    assert detect("яя".encode("cp1251")) == "windows-1252"
    assert detect(b"") == "windows-1252"


@pytest.mark.parametrize(
    "body", [b"\xe9" * 8_000_000, b"\x82\xa0<" * 3_000_000, b"x" * 8_000_000 + b"\xff", b"\xff\n" * 4_000_000]
)
def test_large_bodies_take_no_longer(body: bytes) -> None:
    begin = time.thread_time()
    detect(body)
    assert time.thread_time() - begin < 0.5


def test_declared_encoding_is_not_guessed() -> None:
    body = RUSSIAN.encode("cp1251")
    assert page_of(body, content_type="text/html; charset=koi8-r").encoding == "koi8-r"
    assert page_of(b"<meta charset=iso-8859-1>" + body, content_type="text/html").encoding == "windows-1252"
