"""The forms: each reads its fields, calls one function, and says where to go and what was done.

The sentence about what was done is chosen by name from :data:`DONE`, because it travels in the address of the next
page: an address can only choose one of these sentences and the number or name in it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from uttu.api.pages.shapes import PageData, Role, StartForm
from uttu.api.pages.translation import Translator, mark
from uttu.errors import UsageError

DONE: Final = {
    "pause": mark("Paused. Workers finish the pages in flight."),
    "resume": mark("Resumed."),
    "stop": mark("Stopping. Workers finish the pages in flight."),
    "rate": mark("The rate of {what} is set."),
    "unpin": mark("The crawl decides the rate of {what} again."),
    "push": mark("URLs pushed: {what}"),
    "retry": mark("Dead letters queued again: {what}"),
    "drain": mark("Worker {what} finishes its pages and leaves."),
    "export": mark("Items exported: {what}"),
    "move": mark("Moved. The crawl is in the other store now."),
    "publish": mark("Published to {what}."),
    "purge": mark("Messages deleted: {what}"),
    "forget": mark("The group is deleted."),
    "republish": mark("Dead letters published again: {what}"),
    "send": mark("Sent. The id of the task is {what}."),
    "revoke": mark("Revoked."),
    "pool": mark("The pool of {what} is resized."),
    "shutdown": mark("Worker {what} shuts down."),
    "schedule-pause": mark("Schedule {what} is paused."),
    "schedule-resume": mark("Schedule {what} is resumed."),
    "schedule-run": mark("Schedule {what} runs now."),
    "schedule-remove": mark("Schedule {what} is removed."),
    "schedule-add": mark("Schedule {what} is added."),
    "start": mark("Started. The first pages show up within seconds."),
    "password": mark("Your password is changed. Other sessions of yours are ended."),
    "user-add": mark("User {what} is added."),
    "user-remove": mark("{what} is removed."),
}


def describe_done(name: str, what: str, t: Translator) -> str:
    """The sentence about what was done; empty if the name is unknown."""
    return t(DONE[name], what=what[:100]) if name in DONE else ""


class Sent(msgspec.Struct, frozen=True):
    """A form that was sent."""

    data: PageData
    by: str
    t: Translator
    params: Mapping[str, str]
    fields: Mapping[str, str]
    lists: Mapping[str, list[str]] = {}

    def need(self, name: str) -> str:
        """A field that must not be empty.

        :raises UsageError: it is.
        """
        if value := self.fields.get(name, "").strip():
            return value
        raise UsageError(self.t("Fill in the field “{name}”", name=name))

    def text(self, name: str) -> str:
        return self.fields.get(name, "").strip()

    def number(self, name: str) -> float:
        """:raises UsageError: the field is not a number of 0 or more."""
        try:
            found = float(self.need(name))
        except ValueError:
            found = -1.0
        if not 0 <= found < 1e9:
            raise UsageError(self.t("The field “{name}” must be a number, 0 or more", name=name))
        return found


class FormResult(msgspec.Struct, frozen=True):
    """Where to go after a form, and what to say there.

    ``template``: a page that is shown instead, with the values ``shown``.
    """

    to: str
    name: str
    what: str = ""
    template: str = ""
    shown: dict[str, Any] = {}


class Form(msgspec.Struct, frozen=True):
    """A form: its path, who may send it, and what it does."""

    path: str
    role: Role
    handle: Callable[[Sent], Awaitable[FormResult]]


def _here(sent: Sent, tab: str = "") -> str:
    return f"/crawls/{sent.params['store']}/{sent.params['crawl']}" + (f"/{tab}" if tab else "")


def _crawl(sent: Sent) -> tuple[str, str]:
    return sent.params["store"], sent.params["crawl"]


def _changes_state(action: str) -> Callable[[Sent], Awaitable[FormResult]]:
    async def change(sent: Sent) -> FormResult:
        await sent.data.change_state(*_crawl(sent), action, sent.by)
        return FormResult(_here(sent), action)

    return change


async def set_rate(sent: Sent) -> FormResult:
    """Set the delay of a host in seconds; an empty field removes the pin."""
    host = sent.need("host")
    delay = sent.number("delay") if sent.text("delay") else None
    await sent.data.set_rate(*_crawl(sent), host, delay, sent.by)
    return FormResult(_here(sent, "hosts"), "unpin" if delay is None else "rate", host)


async def push_urls(sent: Sent) -> FormResult:
    pushed = await sent.data.push_urls(*_crawl(sent), sent.need("urls").split(), sent.by)
    return FormResult(_here(sent), "push", f"{pushed:,}")


async def retry_dead(sent: Sent) -> FormResult:
    kind, message, url = sent.text("kind"), sent.text("message"), sent.text("url")
    revived = await sent.data.retry_dead(*_crawl(sent), kind, message, url, sent.by)
    return FormResult(_here(sent, "errors"), "retry", f"{revived:,}")


async def drain_worker(sent: Sent) -> FormResult:
    worker = sent.need("worker")
    await sent.data.drain_worker(*_crawl(sent), worker, sent.by)
    return FormResult(_here(sent, "workers"), "drain", worker)


async def export_items(sent: Sent) -> FormResult:
    exported = await sent.data.export_items(*_crawl(sent), sent.need("target"), sent.by)
    return FormResult(_here(sent, "items"), "export", f"{exported:,}")


async def move_crawl(sent: Sent) -> FormResult:
    await sent.data.move_crawl(*_crawl(sent), sent.need("target"), sent.by)
    return FormResult(_here(sent), "move")


async def publish_message(sent: Sent) -> FormResult:
    bus, topic = sent.params["bus"], sent.need("topic")
    headers = dict(line.split(":", 1) for line in sent.text("headers").splitlines() if ":" in line)
    trimmed = {name.strip(): value.strip() for name, value in headers.items()}
    payload, is_text = sent.fields.get("payload", ""), sent.text("format") == "text"
    await sent.data.publish_message(bus, topic, payload, sent.text("key"), trimmed, is_text, sent.by)
    return FormResult(f"/queues/{bus}", "publish", topic)


async def purge_group(sent: Sent) -> FormResult:
    bus, group = sent.params["bus"], sent.need("group")
    forget = sent.text("what") == "group"
    purged = await sent.data.purge_group(bus, group, sent.text("what") == "dead", forget, sent.by)
    return FormResult(f"/queues/{bus}", "forget" if forget else "purge", f"{purged:,}")


async def republish_dead(sent: Sent) -> FormResult:
    bus = sent.params["bus"]
    count = await sent.data.republish_dead(bus, sent.need("group"), sent.by)
    return FormResult(f"/queues/{bus}", "republish", f"{count:,}")


async def send_task(sent: Sent) -> FormResult:
    args, kwargs = sent.text("args") or "[]", sent.text("kwargs") or "{}"
    _check_json(sent, "args", args, list)
    _check_json(sent, "kwargs", kwargs, dict)
    sent_id = await sent.data.send_task(sent.need("task"), args, kwargs, sent.by)
    return FormResult("/jobs", "send", sent_id)


def _check_json(sent: Sent, name: str, text: str, kind: type[Any]) -> None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        example = "[1, 2]" if kind is list else '{"a": 1}'
        raise UsageError(sent.t("The field “{name}” must be JSON, such as {example}", name=name, example=example))


async def revoke_task(sent: Sent) -> FormResult:
    await sent.data.revoke_task(sent.need("id"), sent.text("terminate") == "on", sent.by)
    return FormResult("/jobs", "revoke")


async def resize_pool(sent: Sent) -> FormResult:
    worker = sent.need("worker")
    await sent.data.resize_pool(worker, 1 if sent.text("change") == "grow" else -1, sent.by)
    return FormResult("/jobs", "pool", worker)


async def shut_down_worker(sent: Sent) -> FormResult:
    worker = sent.need("worker")
    await sent.data.shut_down_worker(worker, sent.by)
    return FormResult("/jobs", "shutdown", worker)


def _changes_schedule(action: str) -> Callable[[Sent], Awaitable[FormResult]]:
    async def change(sent: Sent) -> FormResult:
        name = sent.need("name")
        await sent.data.change_schedule(name, action, sent.by)
        return FormResult("/schedules", f"schedule-{action}", name)

    return change


async def add_schedule(sent: Sent) -> FormResult:
    """Add a schedule of a task. ``when`` is a crontab line, or an interval such as 30s, 5m, 2h or 1d."""
    name, args, kwargs = sent.need("name"), sent.text("args") or "[]", sent.text("kwargs") or "{}"
    _check_json(sent, "args", args, list)
    _check_json(sent, "kwargs", kwargs, dict)
    table = {"task": sent.need("task"), "args": json.loads(args), "kwargs": json.loads(kwargs)}
    if overlap := sent.text("overlap"):
        table["overlap"] = overlap
    await sent.data.add_schedule(name, {**table, **parse_when(sent.need("when"))}, sent.by)
    return FormResult("/schedules", "schedule-add", name)


_INTERVALS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_when(text: str) -> dict[str, Any]:
    """A crontab line, or an interval: ``90``, ``30s``, ``5m``, ``2h``, ``1d``."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _INTERVALS else (text, "s")
    return {"every": float(number) * _INTERVALS[unit]} if number.strip().isdigit() else {"crontab": text}


async def fetch_page(sent: Sent) -> FormResult:
    """Fetch a page, and show it."""
    fetched = await sent.data.fetch_page(sent.need("url"))
    shown = {"page_title": sent.t("Fetch a page"), "section": "fetch", "url": sent.text("url"), "fetched": fetched}
    return FormResult("/fetch", "", template="fetch.html", shown=shown)


async def start_crawl(sent: Sent) -> FormResult:
    """Start the crawl of a spider file, or schedule it if there is a schedule."""
    fields, schedule = sent.fields, sent.text("schedule")
    if schedule and (every := parse_when(schedule).get("every")):
        schedule = f"{every:g}"
    request = StartForm(
        file=sent.need("file"),
        arguments={
            name.removeprefix("argument."): value
            for name, value in fields.items()
            if name.startswith("argument.") and value.strip()
        },
        settings=_read_settings(sent),
        outputs=sent.text("outputs").split(),
        workers=int(sent.number("workers")) if sent.text("workers") else 1,
        crawl=sent.text("crawl"),
        store=sent.text("store"),
        fresh=sent.text("fresh") == "on",
        schedule=schedule,
    )
    started = await sent.data.start_crawl(request, sent.by)
    if request.schedule:
        return FormResult("/schedules", "schedule-add", started.crawl or request.file)
    return FormResult(f"/crawls/{started.store or request.store}/{started.crawl}", "start")


def _read_settings(sent: Sent) -> dict[str, str]:
    found = {
        name.removeprefix("setting."): value.strip()
        for name, value in sent.fields.items()
        if name.startswith("setting.") and value.strip()
    }
    for line in sent.text("settings").splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not equals:
            raise UsageError(sent.t("Write each setting as name=value, not “{line}”", line=line.strip()))
        if equals:
            found[name.strip()] = value.strip()
    return found


async def add_user(sent: Sent) -> FormResult:
    """Add a user, or a token if ``kind`` is token."""
    name, role = sent.need("name"), Role(sent.need("role")) if sent.text("role") in list(Role) else Role.VIEWER
    if sent.text("kind") == "token":
        token = await sent.data.add_token(name, role, sent.by)
        shown = {"page_title": sent.t("Token"), "section": "users", "name": name, "secret": token}
        return FormResult("/users", "user-add", name, template="secret.html", shown=shown)
    await sent.data.add_user(name, sent.need("password"), role, sent.by)
    return FormResult("/users", "user-add", name)


async def remove_user(sent: Sent) -> FormResult:
    name = sent.need("name")
    if sent.text("kind") == "token":
        await sent.data.remove_token(name, sent.by)
    else:
        await sent.data.remove_user(name, sent.by)
    return FormResult("/users", "user-remove", name)


_CRAWL: Final = "/crawls/{store}/{crawl}"
_BUS: Final = "/queues/{bus}"
FORMS: Final = (
    *(Form(f"{_CRAWL}/{action}", Role.OPERATOR, _changes_state(action)) for action in ("pause", "resume", "stop")),
    Form(f"{_CRAWL}/rate", Role.OPERATOR, set_rate),
    Form(f"{_CRAWL}/push", Role.OPERATOR, push_urls),
    Form(f"{_CRAWL}/retry", Role.OPERATOR, retry_dead),
    Form(f"{_CRAWL}/drain", Role.OPERATOR, drain_worker),
    Form(f"{_CRAWL}/export", Role.OPERATOR, export_items),
    Form(f"{_CRAWL}/move", Role.ADMIN, move_crawl),
    Form(f"{_BUS}/publish", Role.OPERATOR, publish_message),
    Form(f"{_BUS}/purge", Role.ADMIN, purge_group),
    Form(f"{_BUS}/republish", Role.OPERATOR, republish_dead),
    Form("/jobs/send", Role.OPERATOR, send_task),
    Form("/jobs/revoke", Role.OPERATOR, revoke_task),
    Form("/jobs/pool", Role.ADMIN, resize_pool),
    Form("/jobs/shutdown", Role.ADMIN, shut_down_worker),
    *(
        Form(f"/schedules/{action}", Role.OPERATOR, _changes_schedule(action))
        for action in ("pause", "resume", "run", "remove")
    ),
    Form("/schedules/add", Role.OPERATOR, add_schedule),
    Form("/start", Role.OPERATOR, start_crawl),
    Form("/fetch", Role.ADMIN, fetch_page),
    Form("/users/add", Role.ADMIN, add_user),
    Form("/users/remove", Role.ADMIN, remove_user),
)
