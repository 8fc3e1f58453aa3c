"""Jobs: tasks by state, their workers and queues; and one task with its result or traceback."""

from __future__ import annotations

from typing import Final

from uttu.api.pages.shapes import TaskQuery
from uttu.api.pages.views import Context, Visit, attempt

STATES: Final = ("PENDING", "RECEIVED", "STARTED", "SUCCESS", "FAILURE", "RETRY", "REVOKED")
_ROWS: Final = 50


async def show_all(visit: Visit) -> Context:
    """The tasks that match, the workers and the queues."""
    state = visit.text("state")
    query = TaskQuery(
        state=state if state in STATES else "",
        name=visit.text("name"),
        match=visit.text("match"),
        limit=_ROWS,
        after=visit.text("after"),
    )
    tasks, tasks_error = await attempt(visit.data.read_tasks(query))
    jobs, jobs_error = await attempt(visit.data.read_jobs())
    return {
        "query": query,
        "states": STATES,
        "tasks": tasks,
        "tasks_error": tasks_error,
        "jobs": jobs,
        "jobs_error": jobs_error,
    }


async def show_task(visit: Visit) -> Context:
    """One task."""
    return {"task": await visit.data.read_task(visit.params["id"])}
