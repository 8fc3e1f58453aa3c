"""What messages may name: files of the project, servers of its settings, and nothing else."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.conftest import MakeWorkshop
from tests.jobs.crawl_jobs import Crawling
from uttu.errors import ConfigError, UttuError
from uttu.jobs.confinement import Confinement
from uttu.jobs.settings import JobSettings
from uttu.testing.site import Site, SiteProcess

EVIL = "from pathlib import Path\nPath({mark!r}).write_text('ran')\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spider and ways out of it, beside another folder."""
    for name in [name for name in os.environ if name.startswith("UTTU_")]:
        monkeypatch.delenv(name)
    outside, inside = tmp_path / "outside", tmp_path / "project"
    (outside / "sub").mkdir(parents=True)
    (outside / "evil.py").touch()
    (outside / "authority.pem").touch()
    (inside / "sub").mkdir(parents=True)
    (inside / ".uttu" / "jobs").mkdir(parents=True)
    (inside / "spider.py").touch()
    (inside / "authority.pem").touch()
    (inside / "link.py").symlink_to(outside / "evil.py")
    (inside / "here.py").symlink_to("spider.py")
    (inside / "away").symlink_to(outside)
    (inside / "link.jsonl").symlink_to(outside / "not-there-yet.jsonl")
    (inside / "round.jsonl").symlink_to("round.jsonl")
    os.mkfifo(inside / "pipe.jsonl")
    return inside


def limits(project: Path, **settings: Any) -> Confinement:
    return Confinement(project, JobSettings(**settings))


OUTSIDE = [
    "../outside/evil.py",
    "sub/../../outside/evil.py",
    "{outside}/evil.py",
    "link.py",
    "away/evil.py",
    "away/../../outside/evil.py",
    "./away/sub/../evil.py",
    "~/evil.py",
    "~root/evil.py",
    "/etc/evil.py",
    "./~root/evil.py",
    ".//~/evil.py",
    "//etc/evil.py",
    "/proc/self/cwd/../outside/evil.py",
    "/dev/fd/0.py",
    ".uttu/evil.py",
    "sub/.git/evil.py",
    "a\0.py",
    "x" * 5000 + ".py",
    "..",
    "",
    " ",
    "spider.so",
    "spider.pyc",
    "spider",
    "file:///etc/evil",
    "pkg.mod:spider",
    "--help",
]


@pytest.mark.parametrize("file", OUTSIDE)
def test_spiders_elsewhere_are_refused(project: Path, file: str) -> None:
    with pytest.raises(ConfigError):
        limits(project).check_spider(file.replace("{outside}", str(project.parent / "outside")))


@pytest.mark.parametrize(
    "file", ["spider.py", "./spider.py", "sub/../spider.py", "sub/new.py", "here.py", "{inside}/spider.py"]
)
def test_spiders_of_the_project_may_be_run(project: Path, file: str) -> None:
    limits(project).check_spider(file.replace("{inside}", str(project)))


@pytest.mark.parametrize(
    "target",
    [
        "../out.jsonl",
        "/tmp/out.jsonl",
        "{outside}/out.jsonl",
        "away/out.jsonl",
        "away/new/out.jsonl",
        "link.jsonl",
        "~/out.jsonl",
        "./~/out.jsonl",
        ".//.//~root/out.jsonl",
        "\ud800.jsonl",
        "-",
        ".uttu/crawls/x.db",
        ".uttu/jobs/out.jsonl",
        ".hidden.jsonl",
        "sub/.git/x.json",
        "pipe.jsonl",
        "out\0.jsonl",
        "x" * 5000 + ".jsonl",
        "/dev/stdout",
        "/proc/self/fd/1",
        "s3://bucket/x.jsonl",
        "file:///tmp/x.jsonl",
        "redis://evil.example/0?topic=x",
        "kafka://evil.example:9092?topic=x",
        "ftp://evil.example/x.csv",
        "redis+unix:///run/redis.sock?topic=x",
        "",
        "round.jsonl/x.csv",
    ],
)
def test_outputs_elsewhere_are_refused(project: Path, target: str) -> None:
    with pytest.raises(ConfigError):
        limits(project).check_output(target.replace("{outside}", str(project.parent / "outside")))


@pytest.mark.parametrize(
    "target", ["out.jsonl", "new/sub/out.csv", "sub/../out.json", "{inside}/out.db", "10:30.jsonl"]
)
def test_outputs_of_the_project_may_be_written(project: Path, target: str) -> None:
    limits(project).check_output(target.replace("{inside}", str(project)))


def test_other_folders_for_outputs_can_be_allowed(project: Path) -> None:
    allowed = limits(project, outputs=("../outside",))
    allowed.check_output(str(project.parent / "outside" / "out.jsonl"))
    allowed.check_output("away/out.jsonl")
    with pytest.raises(ConfigError, match="is outside of"):
        allowed.check_output("/tmp/out.jsonl")
    with pytest.raises(ConfigError, match="is outside of"):
        allowed.check_spider("away/evil.py")


SERVERS = (
    "redis://cache.example:6379/0",
    "amqp://u:p@a.example,b.example/v",
    "kafka://k.example",
    "redis+unix:///run/r.sock",
)


@pytest.mark.parametrize(
    "target",
    [
        "redis://cache.example/0?topic=x",
        "redis://u:p@CACHE.example:6379/3?topic=x",
        "amqp://a.example?topic=x",
        "amqp://b.example:5672,a.example",
        "kafka://k.example:9092?topic=x",
        "redis+unix:///run/r.sock?topic=x",
        "redis+unix:///run/../run/r.sock",
    ],
)
def test_known_servers_may_be_named(project: Path, target: str) -> None:
    limits(project, servers=SERVERS).check_output(target)


@pytest.mark.parametrize(
    "target",
    [
        "redis://cache.example:6380/0",
        "redis://cache.example@evil.example/0",
        "redis://cache.example,evil.example/0",
        "redis://cache.example/0?ssl_ca_certs=/etc/passwd",
        "kafka://k.example?plugin.library.paths=/tmp/evil.so",
        "amqp://a.example?management=http://evil.example",
        "kafka://cache.example:6379",
        "redis://cache.example:x/0",
        "redis+unix:///run/other.sock",
        "redis://[::1/0",
        "http://cache.example:6379/",
    ],
)
def test_other_servers_are_refused(project: Path, target: str) -> None:
    with pytest.raises(ConfigError):
        limits(project, servers=SERVERS).check_output(target)
    with pytest.raises(ConfigError):
        limits(project, servers=SERVERS).check_frontier(target)


def test_a_password_in_an_address_is_not_shown(project: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        limits(project).check_output("redis://me:secret@evil.example/0")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"frontier": "redis://evil.example"},
        {"frontier": "sqlite:/tmp"},
        {"frontier": "sqlite:../outside"},
        {"frontier": "sqlite://away"},
        {"frontier": "SQLITE:~"},
        {"frontier": "sqlite:./~root"},
        {"frontier": "sqlite:.//~"},
        {"frontier": ["sqlite:/tmp"]},
        {"frontier": " sqlite:/tmp"},
        {"frontier": "file:/tmp"},
        {"frontier": "/tmp"},
        {"bus": "redis://evil.example"},
        {"feed": "kafka://evil.example?topic=x"},
        {"proxy": "http://127.0.0.1:8080"},
        {"proxy": "socks5://evil.example:1"},
        {"ca_file": "/etc/passwd"},
        {"ca_file": "away/authority.pem"},
        {"ca_file": "../outside/authority.pem"},
        {"proxy=http://127.0.0.1:9?": "x"},
        {" proxy": "http://127.0.0.1:9"},
        {"proxy ": "x"},
        {"proxy\n": "x"},
        {"": "x"},
        {"private": True},
        {"private": "yes"},
        {"private": 1},
        {"private": "true"},
    ],
)
def test_settings_with_foreign_servers_are_refused(project: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        limits(project).check_settings(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"delay": 2, "max_pages": 5, "headers": {"X": "y"}, "cache": True},
        {"frontier": "sqlite:sub"},
        {"frontier": ""},
        {"proxy": ""},
        {"ca_file": "authority.pem"},
        {"private": False},
        {"private": "no"},
        {"dealy": "is said when the settings are read"},
    ],
)
def test_harmless_settings_are_allowed(project: Path, settings: dict[str, Any]) -> None:
    limits(project).check_settings(settings)


def test_settings_of_the_project_are_allowed(project: Path) -> None:
    (project / "uttu.toml").write_text(
        'frontier = "redis://f.example:1/2"\nproxy = "http://127.0.0.1:8080"\nprivate = true\nca_file = "/etc/ca.pem"\n'
    )
    limits(project).check_settings(
        {
            "frontier": "redis://f.example:1/3",
            "proxy": "http://127.0.0.1:8080",
            "private": True,
            "ca_file": "/etc/ca.pem",
        }
    )


@pytest.mark.parametrize(
    "name", ["--output=/tmp/x.csv", "../x", "a/b", "", ".hidden", "/etc/x.py", "away/evil.py", "a\nb"]
)
def test_foreign_crawl_is_refused(project: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        limits(project).check_crawl(name)


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=6, links=4)) as running:
        yield running


@pytest.fixture(scope="module")
def shop(workshops: MakeWorkshop, site: SiteProcess) -> Crawling:
    """A folder whose worker gets such messages, and a finished crawl."""
    workshop = workshops(include=["echo.py"])
    crawling = Crawling(workshop, site)
    workshop.worker("-c", "2")
    assert crawling.get(crawling.crawl().apply_async())["state"] == "finished"
    outside = workshop.folder.parent / f"{workshop.folder.name}-outside"
    outside.mkdir()
    (outside / "evil.py").write_text(EVIL.format(mark=str(outside / "mark")))
    (workshop.folder / "away").symlink_to(outside)
    (workshop.folder / "link.py").symlink_to(outside / "evil.py")
    return crawling


def outside_of(shop: Crawling) -> Path:
    return shop.workshop.folder.parent / f"{shop.workshop.folder.name}-outside"


def order(file: str, **more: Any) -> dict[str, Any]:
    return {"job": "1", "seconds": 1.0, "began": 0.0, "file": file, **more}


CALLS: list[Callable[[Crawling], Any]] = [
    lambda shop: shop.crawl("link.py"),
    lambda shop: shop.crawl("away/evil.py"),
    lambda shop: shop.crawl(str(outside_of(shop) / "evil.py")),
    lambda shop: shop.crawl(f"../{outside_of(shop).name}/evil.py"),
    lambda shop: shop.crawl("pages.py", output="away/out.jsonl", fresh=True),
    lambda shop: shop.crawl("pages.py", output=["in.jsonl", str(outside_of(shop) / "out.jsonl")], fresh=True),
    lambda shop: shop.crawl("pages.py", settings={"frontier": f"sqlite:{outside_of(shop)}"}),
    lambda shop: shop.crawl("pages.py", crawl="../../x"),
    lambda shop: shop.task("uttu.crawl.join", order("away/evil.py")),
    lambda shop: shop.task("uttu.crawl.join", order("away/evil.py", kind="stop")),
    lambda shop: shop.task("uttu.export", "pages", "away/out.jsonl"),
    lambda shop: shop.task("uttu.export", "pages", str(outside_of(shop) / "out.csv")),
    lambda shop: shop.task("uttu.export", f"--output={outside_of(shop)}/out.csv", "csv"),
    lambda shop: shop.task("uttu.export", "pages", "x.csv", frontier=f"sqlite:{outside_of(shop)}"),
    lambda shop: shop.task("uttu.push", "--frontier=sqlite:away", "http://127.0.0.1:9/"),
    lambda shop: shop.task("uttu.push", "away/evil.py", "http://127.0.0.1:9/"),
    lambda shop: shop.task("uttu.fetch", f"--output={outside_of(shop)}/out"),
    lambda shop: shop.task("uttu.fetch", f"curl -o {outside_of(shop)}/out -d @/etc/passwd {shop.site.url}"),
    lambda shop: shop.task("uttu.fetch", f"file://{outside_of(shop)}/evil.py"),
    lambda shop: shop.task("uttu.fetch", f"curl -x http://127.0.0.1:9 {shop.site.url}"),
    lambda shop: shop.task("uttu.fetch", shop.site.url, settings={"proxy": "http://127.0.0.1:9"}),
    lambda shop: shop.task("uttu.fetch", shop.site.url, settings={"proxy=http://127.0.0.1:9/?": "x"}),
    lambda shop: shop.task("uttu.fetch", shop.site.url, settings={" proxy": "http://127.0.0.1:9"}),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_message_reaches_nothing_outside(shop: Crawling, number: int) -> None:
    before = len(shop.site.records())
    result = CALLS[number](shop).apply_async()
    if result.name == "uttu.crawl.join" or CALLS[number](shop).task == "uttu.crawl.join":
        # It has no result to wait for; what is sent after it to a single queue is.
        assert shop.get(shop.task("echo.echo", "done").apply_async()) == "done"
    else:
        with pytest.raises(UttuError):
            shop.get(result)
    assert sorted(path.name for path in outside_of(shop).iterdir()) == ["evil.py"]
    assert len(shop.site.records()) == before


def test_a_revoked_message_runs_nothing_outside(shop: Crawling) -> None:
    """The crawl of a task that was called off is stopped by a process that loads the spider."""
    task_id = f"revoked-{shop.workshop.name}"
    shop.workshop.app.control.revoke(task_id, reply=True, timeout=5)
    shop.crawl("away/evil.py", stage={"number": 2}).apply_async(task_id=task_id)
    assert shop.get(shop.task("echo.echo", "done").apply_async()) == "done"
    assert sorted(path.name for path in outside_of(shop).iterdir()) == ["evil.py"]


def test_task_does_not_replace_a_foreign_file(shop: Crawling) -> None:
    file = shop.workshop.folder / "package.json"
    file.write_text("{}\n")
    for call in (
        shop.crawl("pages.py", output="package.json", fresh=True),
        shop.task("uttu.export", "pages", "package.json"),
    ):
        with pytest.raises(UttuError, match="Uttu did not write it"):
            shop.get(call.apply_async())
    assert file.read_text() == "{}\n"


def test_a_name_that_looks_like_an_option_is_a_name(shop: Crawling) -> None:
    with pytest.raises(UttuError, match="There is no crawl '--json'"):
        shop.get(shop.task("uttu.export", "--json", "x.csv").apply_async())


def test_pushed_requests_may_not_name_a_private_proxy(shop: Crawling) -> None:
    assert socket.gethostbyname("localhost").startswith("127.")
    pushed = [
        f'{{"url": "{shop.site.url}x", "proxy": "http://{host}:9"}}'
        for host in ("127.0.0.1", "localhost", "10.0.0.1", "[::1]", "2130706433", "169.254.169.254")
    ]
    shop.get(shop.crawl("pages.py", settings={"max_pages": 1}, fresh=True).apply_async())
    told = shop.get(shop.task("uttu.push", "pages", pushed).apply_async())
    assert (told["new"], told["bad"]) == (0, len(pushed))
