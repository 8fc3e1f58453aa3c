"""The table of everything that the API can do. Routes, checks, OpenAPI and the tests of access follow from it."""

from __future__ import annotations

from typing import Final

from uttu.api import sessions, streams
from uttu.api.accounts import Role
from uttu.api.data import accounts, buses, control, crawls, jobs, schedules
from uttu.api.endpoints import Endpoint, make_endpoint, make_raw_endpoint
from uttu.api.metrics import Health, show_health, show_metrics

_V, _O, _A = Role.VIEWER, Role.OPERATOR, Role.ADMIN
_CRAWL: Final = "/crawls/{store}/{crawl}"
_GROUP: Final = "/buses/{bus}/groups/{group}"

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    make_endpoint("GET", "/overview", _V, crawls.read_overview),
    # Crawls
    make_endpoint("GET", "/crawls", _V, crawls.read_crawls),
    make_endpoint("POST", "/crawls:start", _O, schedules.start_crawl),
    make_endpoint("GET", _CRAWL, _V, crawls.read_crawl),
    make_endpoint("GET", f"{_CRAWL}/history", _V, crawls.read_history),
    make_endpoint("GET", f"{_CRAWL}/events", _V, crawls.read_events),
    make_endpoint("GET", f"{_CRAWL}/events/latest", _V, crawls.read_event_page),
    make_endpoint("GET", f"{_CRAWL}/keys", _V, crawls.read_keys),
    make_endpoint("GET", f"{_CRAWL}/lanes", _V, crawls.list_lanes, "read_lanes"),
    make_endpoint("GET", f"{_CRAWL}/requests", _V, crawls.explain),
    make_endpoint("GET", f"{_CRAWL}/dead", _V, crawls.read_dead_letters),
    make_endpoint("GET", f"{_CRAWL}/items", _V, crawls.read_items),
    make_endpoint("GET", f"{_CRAWL}/workers", _V, crawls.read_workers),
    make_endpoint("GET", f"{_CRAWL}/settings", _V, crawls.read_settings),
    make_endpoint("POST", f"{_CRAWL}:pause", _O, control.change_state, "pause_crawl", "Pause a crawl.", action="pause"),
    make_endpoint(
        "POST", f"{_CRAWL}:resume", _O, control.change_state, "resume_crawl", "Resume a paused crawl.", action="resume"
    ),
    make_endpoint("POST", f"{_CRAWL}:stop", _O, control.change_state, "stop_crawl", "Stop a crawl.", action="stop"),
    make_endpoint("POST", f"{_CRAWL}:rate", _O, control.set_rate),
    make_endpoint("POST", f"{_CRAWL}:push", _O, control.push_urls),
    make_endpoint("POST", f"{_CRAWL}:retry", _O, control.retry_dead),
    make_endpoint("POST", f"{_CRAWL}:drain", _O, control.drain_worker),
    make_endpoint("POST", f"{_CRAWL}:export", _O, control.export_items),
    make_endpoint("POST", f"{_CRAWL}:move", _A, control.move_crawl),
    make_endpoint("GET", "/spiders", _O, schedules.find_spiders),
    make_endpoint("POST", "/pages:fetch", _A, control.fetch_page),
    # Brokers
    make_endpoint("GET", "/buses", _V, buses.read_buses),
    make_endpoint("GET", "/buses/{bus}", _V, buses.describe_bus),
    make_endpoint("GET", "/buses/{bus}/groups", _V, buses.read_groups),
    make_endpoint("GET", "/buses/{bus}/lags", _V, buses.read_lags),
    make_endpoint("GET", f"{_GROUP}/messages", _V, buses.peek_messages),
    make_endpoint("POST", "/buses/{bus}:publish", _O, buses.publish_message),
    make_endpoint("POST", f"{_GROUP}:purge", _A, buses.purge_group),
    make_endpoint("POST", f"{_GROUP}:republish", _O, buses.republish_dead),
    # Jobs and schedules
    make_endpoint("GET", "/jobs", _V, jobs.read_jobs),
    make_endpoint("GET", "/jobs/workers", _V, jobs.read_job_workers),
    make_endpoint("GET", "/jobs/queues", _V, jobs.read_queues),
    make_endpoint("GET", "/jobs/tasks", _V, jobs.read_tasks),
    make_endpoint("GET", "/jobs/tasks/{id}", _V, jobs.read_task),
    make_endpoint("POST", "/jobs/tasks:send", _O, jobs.send_task),
    make_endpoint("POST", "/jobs/tasks/{id}:revoke", _O, jobs.revoke_task),
    make_endpoint("POST", "/jobs/workers:resize", _A, jobs.resize_pool),
    make_endpoint("POST", "/jobs/workers:shutdown", _A, jobs.shut_down_worker),
    make_endpoint("GET", "/schedules", _V, schedules.read_schedules),
    make_endpoint("GET", "/schedules:preview", _V, schedules.preview_schedule),
    make_endpoint("POST", "/schedules:add", _O, schedules.add_schedule),
    *(
        make_endpoint(
            "POST",
            f"/schedules:{action}",
            _O,
            schedules.change_schedule,
            f"{action}_schedule",
            summary,
            action=action,
        )
        for action, summary in (
            ("pause", "Pause a schedule."),
            ("resume", "Resume a schedule from its next time on."),
            ("run", "Send the task of a schedule now."),
            ("remove", "Remove a schedule that was added."),
        )
    ),
    # Access
    make_endpoint("GET", "/users", _A, accounts.read_users),
    make_endpoint("POST", "/users:add", _A, accounts.add_user),
    make_endpoint("POST", "/users:password", _A, accounts.change_password),
    make_endpoint("POST", "/users:remove", _A, accounts.remove_user),
    make_endpoint("POST", "/tokens:add", _A, accounts.add_token),
    make_endpoint("POST", "/tokens:remove", _A, accounts.remove_token),
    make_endpoint("GET", "/audit", _A, accounts.read_audit),
    make_raw_endpoint("GET", "/session", _V, sessions.read_session, "application/json", result=sessions.SessionView),
    make_raw_endpoint(
        "POST",
        "/session:password",
        _V,
        sessions.change_own_password,
        "application/json",
        body=sessions.NewPassword,
        result=sessions.SessionView,
    ),
    make_raw_endpoint("POST", "/session:end", _V, sessions.log_out, "application/json", result=sessions.SessionView),
    # Streams
    make_raw_endpoint("GET", "/events", _V, streams.follow_events, "text/event-stream"),
    make_raw_endpoint(
        "GET",
        f"{_CRAWL}/items:download",
        _V,
        streams.download_items,
        "application/x-ndjson",
        params=streams.DownloadParameters,
    ),
    make_raw_endpoint("GET", "/metrics", _V, show_metrics, "text/plain"),
)
"""Endpoints that need a role."""

PUBLIC: Final[tuple[Endpoint, ...]] = (
    make_raw_endpoint(
        "POST",
        "/session:start",
        None,
        sessions.log_in,
        "application/json",
        body=sessions.Login,
        result=sessions.SessionView,
    ),
    make_raw_endpoint("GET", "/healthz", None, show_health, "application/json", result=Health),
)
"""Endpoints that need no login."""
