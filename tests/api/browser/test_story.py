"""A day with the dashboard in a real browser: in English, light, over SQLite; and in Chinese, dark, over Redis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.api.browser.project import PASSWORD, DashboardProcess, Project
from tests.harness.servers import RedisServer
from uttu.api.pages.translation import Translator
from uttu.testing.site import SiteProcess

CRAWL = "prices"


class Story(msgspec.Struct, kw_only=True):
    """A page that the story goes on in, and the words of its language."""

    page: Page
    browser: Browser
    project: Project
    url: str
    language: str
    theme: str
    store: str
    bus: str
    problems: list[str]

    def t(self, text: str, **values: object) -> str:
        return Translator(self.language)(text, **values)

    @property
    def crawl(self) -> str:
        return f"/crawls/{self.store}/{CRAWL}"

    def open(self, path: str) -> None:
        answer = self.page.goto(self.url + path, wait_until="domcontentloaded")
        assert answer
        assert answer.status == 200, (path, answer.status, self.page.locator("main").inner_text())

    def press(self, text: str, within: Locator | None = None) -> None:
        """Click the button with this text."""
        (within or self.page.locator("body")).get_by_role("button", name=self.t(text), exact=True).first.click()

    def expect_done(self, text: str, **values: object) -> None:
        """The page says this. Its script has run then, so that it hears keys."""
        expect(self.page.locator("[data-done]")).to_contain_text(self.t(text, **values))
        self.page.wait_for_load_state()

    def stat(self, name: str) -> Locator:
        """The value of a number of the crawl."""
        named = self.page.locator("dt", has_text=re.compile(f"^{re.escape(self.t(name))}"))
        return self.page.locator("#live-numbers .stat").filter(has=named).locator("dd")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer("any") as server:
        yield server


@pytest.fixture(params=["en-light-sqlite", "zh-dark-redis"])
def story(
    request: pytest.FixtureRequest, tmp_path: Path, browser: Browser, shop: SiteProcess, redis: RedisServer
) -> Iterator[Story]:
    language, theme, kind = request.param.split("-")
    with Project(tmp_path, shop, redis.url, store=redis.url if kind == "redis" else "") as project:
        project.uttu("bus", "subscribe", "orders", "--group", f"indexer-{language}", "--count", "0")
        with DashboardProcess(project, users=True) as dashboard:
            context = browser.new_context(
                viewport={"width": 1320, "height": 900},
                locale={"en": "en-GB", "zh": "zh-CN"}[language],
                color_scheme="light",
                timezone_id="Asia/Shanghai",
            )
            context.set_default_timeout(20_000)
            page, problems = context.new_page(), list[str]()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
            page.on("response", lambda got: problems.append(f"{got.status} {got.url}") if got.status >= 400 else None)
            page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
            name = f"redis-127.0.0.1-{redis.port}-0"
            yield Story(
                page=page,
                browser=browser,
                project=project,
                url=dashboard.url,
                language=language,
                theme=theme,
                store=name if kind == "redis" else "local",
                bus=name,
                problems=problems,
            )
            context.close()


def test_a_day(story: Story) -> None:
    log_in(story, "operator")
    choose_theme(story)
    start_crawl(story)
    watch(story)
    pause_and_resume(story)
    change_rate(story)
    retry_errors(story)
    find_item(story)
    explain_url(story)
    look_at_worker(story)
    peek_message(story)
    add_schedule(story)
    use_keys(story)
    use_narrow_window(story)
    see_as_viewer(story)
    stop(story)
    work_without_script(story)
    assert not story.problems


def log_in(story: Story, name: str) -> None:
    page = story.page
    page.goto(story.url + "/")
    assert "/login" in page.url
    expect(page.locator("h1")).to_have_text(story.t("Log in"))
    page.fill("input[name=name]", name)
    page.fill("input[name=password]", PASSWORD)
    story.press("Log in")
    expect(page.locator("h1")).to_have_text(story.t("Overview"))
    expect(page.locator("#live-crawls")).to_contain_text(story.t("No crawl yet"))


def choose_theme(story: Story) -> None:
    page = story.page
    assert page.locator("html").get_attribute("lang") == {"en": "en", "zh": "zh-Hans"}[story.language]
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator(f"button[value={story.theme}]").click()
    expect(page.locator("html")).to_have_attribute("data-theme", story.theme)
    chosen = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (chosen == light) == (story.theme == "light")


def start_crawl(story: Story) -> None:
    page = story.page
    page.get_by_role("link", name=story.t("Start a crawl"), exact=True).last.click()
    page.locator("a[href*='shop.py']").click()
    expect(page.locator("form.card h2")).to_have_text("shop")
    page.fill("input[name='argument.sites']", " ".join(story.project.site.urls))
    page.fill("input[name=crawl]", CRAWL)
    page.fill("input[name='setting.delay']", "0.1")
    page.fill("input[name=outputs]", "items.jsonl")
    story.press("Start")
    page.wait_for_url(f"{story.url}{story.crawl}*")
    story.expect_done("Started. The first pages show up within seconds.")
    # The message about a form is not said again after a reload.
    assert "done=" not in page.url


def watch(story: Story) -> None:
    page = story.page
    expect(page.locator("#connection")).to_have_text(story.t("Live"))
    expect(page.locator("#live-state")).to_contain_text(story.t("Running"))
    done = story.stat("Done")
    expect(done).not_to_have_text("0")
    before = done.inner_text()
    expect(done).not_to_have_text(before)
    # Times are in the viewer's zone.
    began = page.locator("#live-numbers time").first
    assert (began.get_attribute("title") or "").endswith("GMT+8")
    title = page.locator("#chart-pages .chart-title")
    area = page.locator("#chart-pages svg").bounding_box()
    assert area
    page.mouse.move(area["x"] + area["width"] * 0.99, area["y"] + 40)
    expect(title).to_contain_text(" · ")


def pause_and_resume(story: Story) -> None:
    page = story.page
    story.press("Pause", page.locator("#live-verbs"))
    story.expect_done("Paused. Workers finish the pages in flight.")
    expect(page.locator("#live-state")).to_contain_text(story.t("Paused"))
    expect(story.stat("In flight")).to_have_text("0")
    story.press("Resume", page.locator("#live-verbs"))
    story.expect_done("Resumed.")
    expect(page.locator("#live-state")).to_contain_text(story.t("Running"))


def change_rate(story: Story) -> None:
    page = story.page
    page.keyboard.press("2")
    page.wait_for_url(f"{story.url}{story.crawl}/hosts")
    rows = page.locator("#live-hosts tbody tr")
    expect(rows).to_have_count(2)
    host = rows.first.locator("input[name=host]").input_value()
    row = page.locator(f"[id='host-{host}']")
    field = row.locator("input[name=delay]")
    field.fill("0.25")
    # Live changes leave what is being typed, and the focus, alone.
    before = story.stat("Done").inner_text()
    expect(story.stat("Done")).not_to_have_text(before)
    expect(field).to_have_value("0.25")
    expect(field).to_be_focused()
    field.press("Enter")
    story.expect_done("The rate of {what} is set.", what=host)
    expect(row.locator("td").nth(7)).to_contain_text(story.t("Pinned"))


def retry_errors(story: Story) -> None:
    page = story.page
    story.open(f"{story.crawl}/errors")
    group = page.locator("#live-groups tbody tr").filter(has_text="503")
    expect(group.locator("td.num").first).to_have_text("3")
    story.press("Retry", group)
    story.expect_done("Dead letters queued again: {what}", what=3)
    # They are fetched again, and succeed this time.
    expect(group).to_have_count(0)
    expect(page.locator("#live-groups tbody tr").filter(has_text="404")).to_have_count(1)


def find_item(story: Story) -> None:
    page = story.page
    story.open(f"{story.crawl}/items")
    first = page.locator("#live-items tbody tr").first
    name = first.locator("td[data-label=name]").inner_text()
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{story.url}{story.crawl}/items?*match=*")
    rows = page.locator("#live-items tbody tr")
    assert set(rows.locator("td[data-label=name]").all_inner_texts()) == {name}
    rows.first.locator("summary").click()
    expect(rows.first.locator("pre")).to_contain_text('"price"')
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    content = Path(started.value.path()).read_text()
    assert content.startswith(("name,", "\ufeffname,"))
    assert name in content


def explain_url(story: Story) -> None:
    page = story.page
    story.open(f"{story.crawl}/requests")
    url = f"{story.project.site.urls[-1]}odd/status/404"
    page.fill("input[name=url]", url)
    story.press("Explain")
    tale = page.locator(".story")
    expect(tale.locator(".badge").first).to_have_text(story.t("Dead"))
    expect(tale).to_contain_text("404")
    story.open(f"{story.crawl}/requests?url={quote(story.project.site.url + 'shop/', safe='')}")
    expect(tale.locator(".badge").first).to_have_text(story.t("Done"))
    expect(tale).to_contain_text(story.t("It gave"))


def look_at_worker(story: Story) -> None:
    page = story.page
    story.open(f"{story.crawl}/workers")
    worker = page.locator("article.worker")
    expect(worker).to_have_count(1)
    expect(worker.locator(".badge").first).to_have_text(story.t("Alive"))
    log = worker.locator("details[id^=log-]")
    log.locator("summary").click()
    before = story.stat("Done").inner_text()
    expect(story.stat("Done")).not_to_have_text(before)
    expect(log).to_have_attribute("open", "")


def peek_message(story: Story) -> None:
    page = story.page
    story.open(f"/queues/{story.bus}")
    page.fill("input[name=topic]", "orders")
    page.fill("textarea[name=payload]", '{"sku": 17, "note": "<b>今天</b>"}')
    page.fill("input[name=key]", "sku-17")
    page.fill("textarea[name=headers]", "source: browser")
    story.press("Publish")
    story.expect_done("Published to {what}.", what="orders")
    group = page.locator(f"#group-indexer-{story.language}")
    expect(group.locator("td.num b")).not_to_have_text("0")
    group.get_by_role("link", name=story.t("Peek")).click()
    message = page.locator(".messages li").last
    expect(message.locator("pre")).to_contain_text('"note": "<b>今天</b>"')
    expect(message).to_contain_text("sku-17")
    message.locator("summary").click()
    expect(message).to_contain_text("browser")


def add_schedule(story: Story) -> None:
    page = story.page
    story.open("/schedules")
    details = page.locator("main > details.card", has=page.locator('form[action$="/schedules/add"]'))
    if not details.evaluate("element => element.open"):
        details.locator("summary").click()
    name = f"nightly-{story.language}"
    details.locator("input[name=name]").fill(name)
    details.locator("input[name=when]").fill("0 6 * * *")
    details.locator("input[name=args]").fill('["shop.py"]')
    story.press("Add", details)
    story.expect_done("Schedule {what} is added.", what=name)
    row = page.locator(f"#schedule-{name}")
    expect(row).to_contain_text("0 6 * * *")
    story.press("Pause", row)
    story.expect_done("Schedule {what} is paused.", what=name)
    expect(row.locator(".badge").first).to_have_text(story.t("Paused"))


def use_keys(story: Story) -> None:
    page = story.page
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url(f"{story.url}/queues")
    page.keyboard.press("?")
    expect(page.locator("dialog#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#keys")).not_to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(f"{story.url}/")
    expect(page.locator("#live-crawls tbody tr").first).to_contain_text(CRAWL)


def use_narrow_window(story: Story) -> None:
    page = story.page
    page.set_viewport_size({"width": 390, "height": 844})
    for path in (
        "/",
        story.crawl,
        f"{story.crawl}/hosts",
        f"{story.crawl}/errors",
        f"/queues/{story.bus}",
        "/schedules",
    ):
        story.open(path)
        too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert too_wide <= 0, path
    expect(page.locator(".side nav")).not_to_be_visible()
    page.locator(".menu-button").click()
    expect(page.locator(".side nav")).to_be_visible()
    page.set_viewport_size({"width": 1320, "height": 900})


def see_as_viewer(story: Story) -> None:
    """A viewer sees everything, and no button that changes something."""
    context = story.browser.new_context(locale={"en": "en-GB", "zh": "zh-CN"}[story.language])
    mine, story.page = story.page, context.new_page()
    page = story.page
    page.goto(f"{story.url}{story.crawl}")
    page.fill("input[name=name]", "viewer")
    page.fill("input[name=password]", PASSWORD)
    story.press("Log in")
    page.wait_for_url(f"{story.url}{story.crawl}")
    expect(page.locator("#live-state")).to_contain_text(story.t("Running"))
    harmless = re.compile("/(preferences|logout)$")
    tabs = ("", "/hosts", "/errors", "/items", "/workers", "/settings", "/events")
    for path in ("/", *(story.crawl + tab for tab in tabs), f"/queues/{story.bus}", "/jobs", "/schedules"):
        story.open(path)
        sent = page.locator("form[method=post]").evaluate_all("all => all.map(form => form.getAttribute('action'))")
        assert [action for action in sent if not harmless.search(action)] == [], path
    answer = page.goto(f"{story.url}/start")
    assert answer
    assert answer.status == 403
    context.close()
    story.page = mine


def stop(story: Story) -> None:
    """Stopping asks first. Escape takes it back."""
    page = story.page
    story.open(story.crawl)
    story.press("Stop", page.locator("#live-verbs"))
    dialog = page.locator("dialog#confirm")
    expect(dialog).to_contain_text(CRAWL)
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    expect(page.locator("#live-state")).to_contain_text(story.t("Running"))
    story.press("Stop", page.locator("#live-verbs"))
    dialog.locator("[data-yes]").click()
    story.expect_done("Stopping. Workers finish the pages in flight.")
    expect(page.locator("#live-state")).to_contain_text(story.t("Stopped"))


def work_without_script(story: Story) -> None:
    state = story.page.context.storage_state()
    context = story.browser.new_context(java_script_enabled=False, storage_state=state)
    page = context.new_page()
    page.goto(f"{story.url}/schedules")
    page.locator(f"#schedule-nightly-{story.language} form[action$='/resume'] button").click()
    assert "done=schedule-resume" in page.url
    context.close()
