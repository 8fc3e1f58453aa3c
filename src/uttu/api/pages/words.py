"""Sentences and labels for typed values: problems, events, states, and why a host waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from uttu.api.pages.formatting import format_duration, format_number
from uttu.api.pages.shapes import Alert, AlertKind, HostWait, ProgressWait, Waiting, WaitKind
from uttu.api.pages.translation import Translator, mark
from uttu.model.history import CrawlEvent, EventKind
from uttu.operations.diagnosis import Problem, ProblemKind

_LABELS: Final = {
    # States of crawls
    "running": mark("Running"),
    "paused": mark("Paused"),
    "stopping": mark("Stopping"),
    "stopped": mark("Stopped"),
    "limited": mark("Limit reached"),
    "finished": mark("Finished"),
    "cut short": mark("Cut short"),
    "unreadable": mark("Unreadable"),
    # States of requests
    "unknown": mark("Unknown"),
    "pending": mark("Pending"),
    "delayed": mark("Waiting for a retry"),
    "leased": mark("In flight"),
    "done": mark("Done"),
    "dead": mark("Dead"),
    # Filters and waits of hosts
    "all": mark("All"),
    "held": mark("Held"),
    "waiting": mark("Waiting"),
    "ready": mark("Ready"),
    "active": mark("In flight"),
    "pinned": mark("Pinned"),
    "idle": mark("Idle"),
    "robots": mark("robots.txt"),
    "pace": mark("Pace"),
    # Kinds of dead letters
    "http": mark("HTTP error"),
    "scope": mark("Private host"),
    "redirect": mark("Redirect"),
    "middleware": mark("Middleware"),
    "spider": mark("Spider"),
    "handler": mark("Handler"),
    "internal": mark("Internal error"),
    "lost": mark("Lost with its workers"),
    "dns": mark("DNS"),
    "timeout": mark("Timeout"),
    "connect": mark("Connection"),
    "tls": mark("TLS"),
    "body": mark("Body"),
    # Kinds of events
    "state": mark("State"),
    "worker": mark("Worker"),
    "lane": mark("Host"),
    "operator": mark("Operator"),
    "output": mark("Output"),
    # States of tasks, as Celery names them
    "PENDING": mark("Queued"),
    "RECEIVED": mark("Received"),
    "STARTED": mark("Running"),
    "PROGRESS": mark("Running"),
    "SUCCESS": mark("Succeeded"),
    "FAILURE": mark("Failed"),
    "RETRY": mark("Retrying"),
    "REVOKED": mark("Revoked"),
    # Schedules
    "new": mark("New"),
    "sent": mark("Sent"),
    "code": mark("Code"),
    "command": mark("Added here"),
    # Sources of settings
    "default": mark("Default"),
    "environment": mark("Environment"),
    "flag": mark("Command line"),
    # Tables of brokers
    "Keys": mark("Keys"),
    "Brokers": mark("Brokers"),
    "Partitions": mark("Partitions"),
    "Offsets of groups": mark("Offsets of groups"),
    "Exchanges": mark("Exchanges"),
    "Bindings": mark("Bindings"),
    "Queues": mark("Queues"),
    "address": mark("Address"),
    "broker": mark("Broker"),
    "bytes": mark("Size, bytes"),
    "committed": mark("Committed"),
    "consumers": mark("Consumers"),
    "controller": mark("Controller"),
    "destination": mark("Destination"),
    "durable": mark("Durable"),
    "end offset": mark("End offset"),
    "exchange": mark("Exchange"),
    "first offset": mark("First offset"),
    "group": mark("Group"),
    "in sync": mark("In sync"),
    "kind": mark("Kind"),
    "lag": mark("Lag"),
    "leader": mark("Leader"),
    "messages": mark("Messages"),
    "name": mark("Name"),
    "partition": mark("Partition"),
    "replicas": mark("Replicas"),
    "routing key": mark("Routing key"),
    "topic": mark("Topic"),
    "type": mark("Type"),
    "unacknowledged": mark("Unacknowledged"),
    # Roles and themes
    "viewer": mark("Viewer"),
    "admin": mark("Admin"),
    "auto": mark("As the system"),
    "light": mark("Light"),
    "dark": mark("Dark"),
}

_TONES: Final = {
    "ok": {"running", "SUCCESS", "ready", "active", "STARTED", "PROGRESS", "leased"},
    "warn": {"paused", "stopping", "limited", "held", "robots", "RETRY", "delayed", "REVOKED", "pinned", "WARNING"},
    "bad": {"cut short", "unreadable", "dead", "FAILURE", "ERROR", "CRITICAL", "down"},
    "info": {"finished", "done", "sent", "new", "RECEIVED", "flag", "command"},
}


def label(value: object, t: Translator) -> str:
    """The name of an enum value; a value that has none is shown as it is."""
    text = str(value)
    return t(_LABELS[text]) if text in _LABELS else text


def tone(value: object) -> str:
    """The colour of a badge: ok, warn, bad, info, or quiet."""
    text = str(value)
    return next((name for name, values in _TONES.items() if text in values), "quiet")


_PROBLEMS: Final = {
    AlertKind.STORE_AWAY: mark("The store {store} does not answer: {reason}"),
    AlertKind.BUS_AWAY: mark("The broker {bus} does not answer: {reason}"),
    AlertKind.CUT_SHORT: mark("{crawl} was cut short with {pages} pages to do. Continue with: {command}"),
    AlertKind.UNREADABLE: mark("{crawl} can't be read: {reason}"),
    AlertKind.NO_WORKERS: mark("{crawl} is running, but no worker reports. Start one with: uttu worker FILE"),
    AlertKind.WORKER_SILENT: mark(
        "{workers} workers of {crawl} with pages in hand do not report any more, such as {example}"
    ),
    AlertKind.STALLED: mark("{crawl} has {pages} pages to do and finished none for {seconds}"),
    AlertKind.ERRORS: mark("{crawl}: {share} of the pages of the last {seconds} failed"),
    AlertKind.FAILED: mark("{crawl} stopped by itself: {reason}. Continue with: {command}"),
    AlertKind.UNATTENDED: mark("The outputs of {crawl} are incomplete. Complete them with: {command}"),
    AlertKind.REFUSED: mark("{crawl}: sites refuse {share} of its requests with 403, 429 or 503"),
    AlertKind.NO_ANSWER: mark("{crawl}: {share} of its requests get no answer"),
    AlertKind.LAG: mark("Group {group} is {lag} messages behind"),
    AlertKind.DEAD_MESSAGES: mark("Group {group} has {count} dead letters"),
    AlertKind.SCHEDULE: mark("Schedule {schedule}: {reason}"),
    AlertKind.OTHER: mark("{crawl}: {reason}"),
}


_ALERTS: Final = {
    ProblemKind.UNREADABLE: AlertKind.UNREADABLE,
    ProblemKind.CUT_SHORT: AlertKind.CUT_SHORT,
    ProblemKind.NO_WORKERS: AlertKind.NO_WORKERS,
    ProblemKind.SILENT_WORKERS: AlertKind.WORKER_SILENT,
    ProblemKind.STALLED: AlertKind.STALLED,
    ProblemKind.FAILED: AlertKind.FAILED,
    ProblemKind.UNATTENDED: AlertKind.UNATTENDED,
    ProblemKind.ERRORS: AlertKind.ERRORS,
    ProblemKind.REFUSED: AlertKind.REFUSED,
    ProblemKind.NO_ANSWER: AlertKind.NO_ANSWER,
}


def make_alert(store: str, problem: Problem) -> Alert:
    """What is wrong with a crawl of a store, as pages show it."""
    kind = _ALERTS.get(problem.kind, AlertKind.OTHER)
    fields: dict[str, str | int | float] = {"reason": str(problem.kind)} if kind is AlertKind.OTHER else {}
    return Alert(kind=kind, store=store, crawl=problem.crawl, fields=fields | problem.fields)


def describe_problem(problem: Alert, t: Translator) -> str:
    """A problem as a sentence."""
    fields: dict[str, Any] = {"crawl": problem.crawl, "bus": problem.bus, "store": problem.store}
    for name, value in problem.fields.items():
        fields[name] = _format_field(name, value, t)
    return t.fill(_PROBLEMS[problem.kind], _Fields(fields))


class _Fields(dict[str, Any]):
    """Values for a sentence; one that is missing is shown as an ellipsis."""

    def __missing__(self, name: str) -> str:
        return "…"


def _format_field(name: str, value: str | int | float, t: Translator) -> str:
    if isinstance(value, str):
        return t.message(value) if name == "reason" else value
    if name in ("seconds", "age"):
        return format_duration(value, t)
    return f"{value:.0%}" if name == "share" else format_number(value)


_WAITS: Final = {
    WaitKind.HELD: mark("Held back: {text}"),
    WaitKind.PACE: mark("Keeps its distance between two requests"),
    WaitKind.ACTIVE: mark("Waits for the pages in flight"),
    WaitKind.READY: mark("Ready: the next free worker takes it"),
    WaitKind.PINNED: mark("Keeps the rate that an operator set"),
    WaitKind.IDLE: mark("Nothing pending"),
}


def describe_wait(wait: HostWait, t: Translator) -> str:
    """Why a host waits, as a sentence."""
    return t(_WAITS[wait.kind], text=wait.text)


_PROGRESS_WAITS: Final = {
    ProgressWait.OPERATOR: mark("an operator, who paused it"),
    ProgressWait.WORKERS: mark("workers: none has reported lately"),
    ProgressWait.START: mark("start URLs that are not all read yet"),
    ProgressWait.FEED: mark("{n} pushed start URLs"),
    ProgressWait.FLIGHT: mark("{n} pages in flight"),
    ProgressWait.GONE: mark("{n} pages of workers that are gone"),
    ProgressWait.RETRIES: mark("{n} pages that are tried again later"),
    ProgressWait.HELD: mark("{n} held hosts"),
    ProgressWait.PENDING: mark("{n} pending pages"),
}


def describe_waiting(waiting: Waiting, t: Translator) -> str:
    """One thing that a crawl waits for before it can end."""
    return t(_PROGRESS_WAITS[waiting.kind], n=format_number(waiting.count))


_EVENTS: Final[dict[EventKind, Callable[[dict[str, Any], Translator], str]]] = {
    EventKind.STATE: lambda fields, t: " · ".join(
        filter(None, [label(fields.get("state", ""), t), str(fields.get("reason", ""))])
    ),
    EventKind.WORKER: lambda fields, t: t(
        "{worker} {what}", worker=fields.get("worker", ""), what=_say_what(str(fields.get("what", "")), t)
    ),
    EventKind.LANE: lambda fields, t: t(
        "{host} is held back for {seconds}: {reason}",
        host=fields.get("lane", ""),
        seconds=format_duration(float(fields.get("seconds", 0)), t),
        reason=fields.get("reason", ""),
    ),
}
_WHAT: Final = {
    "joined": mark("joined"),
    "left": mark("left"),
    "lost": mark("was lost"),
    "draining": mark("is draining"),
}
_ACTIONS: Final = {
    "pause": mark("paused the crawl"),
    "resume": mark("resumed the crawl"),
    "stop": mark("stopped the crawl"),
    "rate": mark("changed the rate"),
    "push": mark("pushed URLs"),
    "retry": mark("retried dead letters"),
    "drain": mark("drained a worker"),
    "export": mark("exported items"),
    "move": mark("moved the crawl"),
    "start": mark("started a crawl"),
}


def _say_what(what: str, t: Translator) -> str:
    return t(_WHAT[what]) if what in _WHAT else what


def describe_action(action: str, t: Translator) -> str:
    """What an operator did; an action that has no words is shown as it is."""
    return t(_ACTIONS[action]) if action in _ACTIONS else action


def describe_event(event: CrawlEvent, t: Translator) -> str:
    """An event as a sentence. Fields that the sentence does not name follow it."""
    if event.kind in _EVENTS:
        return _EVENTS[event.kind](event.fields, t)
    fields = dict(event.fields)
    by, action = str(fields.pop("by", "")), str(fields.pop("action", ""))
    rest = ", ".join(f"{name} {value}" for name, value in fields.items())
    said = f"{by} {describe_action(action, t)}".strip()
    return f"{said} ({rest})" if rest else said
