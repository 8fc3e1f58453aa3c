"""Showing one response: what it is on standard error, its body on standard output."""

from __future__ import annotations

import sys
from http import HTTPStatus
from pathlib import Path

from weft.cli.words import print_json, say, size, span
from weft.errors import SinkError
from weft.model import Response
from weft.spider import Page


def say_hop(response: Response, target: str) -> None:
    say(f"{response.status} {response.url}\n    redirects to {target}")


def say_status(response: Response) -> None:
    try:
        phrase = f" {HTTPStatus(response.status).phrase}"
    except ValueError:
        phrase = ""
    parts = [response.headers.get("content-type", "no content type"), size(len(response.body)), span(response.elapsed)]
    if response.version:
        parts.append(response.version)
    if response.cached:
        parts.append("from the cache")
    say(f"{response.status}{phrase} {response.url}\n    {', '.join(parts)}")


def say_headers(response: Response) -> None:
    for name, value in response.headers.pairs():
        say(f"    {name}: {value}")


def print_body(response: Response) -> None:
    """As it came; to a terminal as text, if it is text."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(response.body)
        sys.stdout.buffer.flush()
    elif b"\0" in response.body[:1024]:
        say("not shown: it is no text. Send it to a program or, with -o FILE, to a file")
    else:
        text = Page(response).text
        print(text, end="" if text.endswith("\n") or not text else "\n")


def save(response: Response, file: Path) -> None:
    """:raises SinkError: it can't be written."""
    try:
        file.write_bytes(response.body)
    except OSError as error:
        raise SinkError(f"can't write {file}: {error.strerror or error}") from error
    say(f"    body in {file}")


def print_data(response: Response) -> None:
    print_json(
        {
            "url": response.url,
            "status": response.status,
            "ok": response.ok,
            "via": response.request.via,
            "headers": response.headers.pairs(),
            "elapsed": response.elapsed,
            "version": response.version,
            "size": len(response.body),
            "text": Page(response).text,
        }
    )
