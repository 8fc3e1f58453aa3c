"""A folder with a spider in it, and the ``uttu`` command run there, as a user would."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from uttu.testing.site import SiteProcess

SPIDER = """
import os
from uttu import Page, Spider

spider = Spider("pages", start=os.environ["START"].split(), private=True, robots=False, delay=0, per_host=0)

@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get()}
    yield page.follow_all("a")
"""


class Project:
    """A folder where crawls are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.write("spider.py", SPIDER)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "uttu", *arguments],
            cwd=self.folder,
            text=True,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def rows(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    @staticmethod
    def worker_pids(process: subprocess.Popen[str]) -> list[int]:
        """The worker processes of a running crawl."""
        return [child.pid for child in psutil.Process(process.pid).children()]

    @staticmethod
    def wait_for_end(pids: list[int], seconds: float = 60.0) -> None:
        """Until none of these processes is left."""
        processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        _, alive = psutil.wait_procs(processes, timeout=seconds)
        assert not alive

    def leased(self, crawl: str = "pages", by: int | None = None) -> set[str]:
        """The URLs that workers hold, or the one that is the process ``by``, according to the store."""
        path = self.folder / ".uttu" / "crawls" / f"{crawl}.db"
        db = sqlite3.connect(path)
        try:
            held = db.execute("SELECT record ->> 'u', worker FROM leases").fetchall()
            return {url for url, worker in held if by is None or worker.split("-")[-2] == str(by)}
        finally:
            db.close()


_PEM = serialization.Encoding.PEM


def wait_for(site: SiteProcess, requests: int, seconds: float = 120.0) -> None:
    """Until the site has seen so many requests."""
    deadline = time.monotonic() + seconds
    while len(site.records()) < requests:
        assert time.monotonic() < deadline, f"the site saw {len(site.records())} of {requests} requests"
        time.sleep(0.02)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A certificate for the test site's first address, its key, and the authority that signed it."""
    folder = tmp_path_factory.mktemp("tls")
    authority_key, site_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _signed("uttu test authority", authority_key, "uttu test authority", authority_key, authority=True)
    site = _signed("uttu test site", site_key, "uttu test authority", authority_key, authority=False)
    files = folder / "site.pem", folder / "site.key", folder / "authority.pem"
    files[0].write_bytes(site.public_bytes(_PEM))
    files[1].write_bytes(site_key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    files[2].write_bytes(authority.public_bytes(_PEM))
    return files


def _signed(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, *, authority: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.77.0.1"))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
